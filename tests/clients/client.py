"""The official Python SDK, 2.x: MCP 2026-07-28 with tasks, and 2025-11-25 with sessions.

What it is asked of is in a plan, whose file is the first argument; see `plan` in xtask/src/clients.rs. Each check is told on a
line of JSON: {client, over, check, ok, detail, ms}.
"""

import json
import shutil
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import anyio
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim

PLAN = json.loads(Path(sys.argv[1]).read_text())
TOOL, WORKER, ENDLESS_WORKER = PLAN["tool"], PLAN["worker"], PLAN["endless"]
CALLED = f"{TOOL['member']}__{TOOL['name']}"
PATIENCE = 60
OWN_WORK = {"description": "foreign client", "task": PLAN["question"]}
WORK = OWN_WORK | {"worker": WORKER}
# A task that tells where it is, and then goes on until it is cancelled.
ENDLESS = {"worker": ENDLESS_WORKER, "description": "endless", "task": "summary under-way\nsleep"}
# What a member has only once somebody serves it.
NOT_INSTALLED = shutil.ignore_patterns("jobs", "memory", ".owner")

failed = False


async def check(over: str, name: str, carry_out: Callable[[], Awaitable[Any]]) -> bool:
    """Carries a check out and tells how it went."""
    global failed
    begun, ok = time.monotonic(), True
    try:
        with anyio.fail_after(PATIENCE):
            detail = await carry_out()
    except Exception as error:
        ok, failed = False, True
        # Each task group on the way has wrapped it.
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        detail = "".join(traceback.format_exception(error))
    line = {"client": "python", "over": over, "check": name, "ok": ok, "detail": detail}
    print(json.dumps(line | {"ms": round((time.monotonic() - begun) * 1000)}), flush=True)
    return ok


class TaskParams(types.RequestParams):
    taskId: str


class GetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param: ClassVar[str | None] = "taskId"


class CancelTask(types.Request[TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams
    name_param: ClassVar[str | None] = "taskId"


class Task(types.Result):
    """A task as `tools/call` hands it out, and as `tasks/get` tells of it."""

    taskId: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    createdAt: str
    lastUpdatedAt: str
    ttlMs: int | None
    pollIntervalMs: int | None = None
    statusMessage: str | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class Created(Task):
    result_type: Literal["task"] = "task"


class Tasks(ClientExtension):
    """The Tasks extension: a call that is answered with a task is followed until that ends."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, cancel: bool = False) -> None:
        self.cancel = cancel
        self.seen: list[Task] = []

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self.follow)]

    async def follow(self, task: Task, context: ClaimContext) -> types.CallToolResult:
        self.seen.append(task)
        asked = TaskParams(taskId=task.taskId)
        while task.status == "working":
            if self.cancel and task.statusMessage and "under-way" in task.statusMessage:
                acknowledged = await context.session.send_request(CancelTask(params=asked), types.Result)
                assert "taskId" not in acknowledged.model_dump(), acknowledged
            await anyio.sleep(min(task.pollIntervalMs or 50, 50) / 1000)
            task = await context.session.send_request(GetTask(params=asked), Task)
            self.seen.append(task)
        if task.result is None:
            text = types.TextContent(type="text", text=f"the task is {task.status}: {task.error}")
            return types.CallToolResult(content=[text], is_error=True)
        return types.CallToolResult.model_validate(task.result)


class Way:
    """One way to connect: a transport and a mode."""

    def __init__(self, transport: Literal["HTTP", "stdio"], mode: str) -> None:
        self.transport, self.mode = transport, mode
        self.is_modern = mode != "legacy"
        self.version = mode if self.is_modern else "2025-11-25"
        self.name = f"{transport} {self.version}"

    def connect(self, at: str = "roster", *more: str, **options: Any) -> Client:
        if self.transport == "HTTP":
            server: Any = PLAN["http"][at]
        else:
            command, *args = [*PLAN["stdio"][at], *more]
            server = StdioServerParameters(command=command, args=args, env=PLAN["env"])
        # What it does by itself is tried on the way: `auto` has to find the newer one.
        return Client(server, mode="auto" if self.is_modern else "legacy", read_timeout_seconds=PATIENCE, **options)


async def told(client: Client, name: str, arguments: dict[str, Any], **options: Any) -> Any:
    """What a call was answered with, which must have worked: the text says the same as the structured content."""
    result = await client.call_tool(name, arguments, **options)
    assert not result.is_error, f"{name}: {result.content}"
    assert json.loads(result.content[0].text) == result.structured_content, result
    return result.structured_content


async def report(client: Client, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The report that a call was answered with: Markdown, and nothing that a client would show a model in its place."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, f"{name}: {result.content}"
    assert result.structured_content is None, result
    return {"output": result.content[0].text, **result.meta["guild/job"]}


async def ended(client: Client, job: str) -> Any:
    """Asks until the job has ended; its last status."""
    while (status := await told(client, "status", {"jobId": job}))["status"] == "running":
        await anyio.sleep(0.02)
    return status


async def refusal(asked: Awaitable[Any]) -> MCPError:
    """The error that a request must end in."""
    try:
        value = await asked
    except MCPError as error:
        return error
    raise AssertionError(f"no error, but {value}")


async def everything(way: Way) -> None:
    async def go(name: str, carry_out: Callable[[], Awaitable[Any]]) -> bool:
        return await check(way.name, name, carry_out)

    async def connects() -> str:
        async with way.connect() as host:
            assert host.protocol_version == way.version, host.protocol_version
            assert host.server_info and host.server_info.version, host.server_info
            assert f"`{WORKER}`" in (host.instructions or ""), host.instructions
            return f"{host.server_info.name}, {host.protocol_version}"

    if not await go("connects, and reads what the host says of itself", connects):
        return
    async with way.connect() as host:
        await tools(way, host, go)
        await jobs(way, host, go)
    await sides(way, go)
    if way.is_modern:
        await tasks(way, go)


async def tools(way: Way, host: Client, go: Any) -> None:
    async def lists() -> str:
        listed = {tool.name: tool for tool in (await host.list_tools()).tools}
        for verb in ["workers", "dispatch", "list", "status", "result", "cancel", "delete"]:
            bridged = listed[verb]
            assert bridged.description and bridged.input_schema["type"] == "object", bridged
        assert CALLED in listed, listed
        return f"{len(listed)} tools"

    async def calls() -> None:
        assert await told(host, CALLED, TOOL["input"]) == TOOL["output"]

    async def wrong() -> str:
        result = await host.call_tool(CALLED, TOOL["wrong"])
        assert result.is_error and len(result.content[0].text) > 10, result
        return result.content[0].text

    async def unknown_job() -> None:
        result = await host.call_tool("status", {"jobId": "../outside"})
        assert result.is_error and "Unknown job ID" in result.content[0].text, result

    async def unknown_tool() -> str:
        error = await refusal(host.call_tool(f"{TOOL['member']}__no_such_tool", {}))
        assert error.code == -32602, error
        return error.message

    async def prompts() -> str:
        listed = (await host.list_prompts()).prompts
        assert listed and all(prompt.description for prompt in listed)
        got = await host.get_prompt(listed[0].name)
        assert f"`{WORKER}`" in got.messages[0].content.text, got
        return ", ".join(prompt.name for prompt in listed)

    await go("lists tools of components, and one set of tools for all workers", lists)
    await go("calls a component's tool", calls)
    await go("is told what is wrong with an input, as a result", wrong)
    await go("is told that a job is unknown, as a result", unknown_job)
    await go("is refused a tool that does not exist", unknown_tool)
    await go("lists prompts, and gets the one about the workers", prompts)


async def jobs(way: Way, host: Client, go: Any) -> None:
    done: dict[str, str] = {}

    async def dispatches() -> None:
        begun = await told(host, "dispatch", WORK)
        assert begun["status"] == "running", begun
        end = await ended(host, begun["jobId"])
        assert end["status"] == "completed", end
        result = await report(host, "result", {"jobId": begun["jobId"]})
        assert PLAN["found"] in result["output"], result
        done.update(result)

    async def reads() -> str:
        assert done, "there is no result"
        of: list[str] = []
        cursor = None
        while True:
            page = await host.list_resources(cursor=cursor)
            listed = [str(resource.uri) for resource in page.resources]
            of += [uri for uri in listed if uri.startswith(f"guild://{WORKER}/jobs/{done['jobId']}/")]
            if not (cursor := page.next_cursor):
                break
        texts = [content.text for uri in of for content in (await host.read_resource(uri)).contents]
        assert done["output"] in texts, texts
        templates = (await host.list_resource_templates()).resource_templates
        return " ".join([*of, *(template.uri_template for template in templates)])

    async def no_resource() -> int:
        error = await refusal(host.read_resource(f"guild://{WORKER}/jobs/../../outside"))
        # -32002 was for this until 2026-07-28.
        assert error.code == -32602 or (error.code == -32002 and not way.is_modern), error
        return error.code

    async def cancels() -> None:
        job = {"jobId": (await told(host, "dispatch", ENDLESS))["jobId"]}
        assert (await told(host, "status", job))["status"] == "running"
        assert (await told(host, "cancel", job))["status"] == "cancelled"
        assert (await told(host, "status", job))["status"] == "cancelled"
        result = await host.call_tool("result", job)
        assert result.is_error and "cancelled" in result.content[0].text, result
        assert (await told(host, "delete", job))["deleted"] is True

    async def waits() -> None:
        end = await report(host, "dispatch", WORK | {"wait": True})
        assert end["status"] == "completed" and PLAN["found"] in end["output"], end

    async def gives_up() -> list[str]:
        description = f"left by python {way.name}"
        heard: list[str] = []
        with anyio.CancelScope() as scope:

            async def progress(_progress: float, _total: float | None, message: str | None) -> None:
                heard.append(message or "")
                if "under-way" in heard[-1]:
                    scope.cancel()

            wait = ENDLESS | {"description": description, "wait": True}
            await host.call_tool("dispatch", wait, progress_callback=progress)
        assert scope.cancelled_caught, f"it was not given up, but ended: {heard}"
        listed = await told(host, "list", {"detail": "detailed", "filter": description})
        assert [job["status"] for job in listed["jobs"]] == ["running"], listed
        await told(host, "cancel", {"jobId": listed["jobs"][0]["jobId"]})
        return heard

    await go("dispatches, follows, and fetches the result", dispatches)
    await go("reads the result as a resource", reads)
    await go("is refused a resource that does not exist", no_resource)
    await go("dispatches, and cancels", cancels)
    await go("waits for the report", waits)
    await go("hears of progress, gives the waiting call up, and the job goes on", gives_up)


async def sides(way: Way, go: Any) -> None:
    async def side_by_side() -> None:
        outputs: list[str] = []

        async def one(n: int) -> None:
            async with way.connect() as client:
                assert await told(client, CALLED, TOOL["input"]) == TOOL["output"]
                work = WORK | {"description": f"side by side {n}"}
                end = await ended(client, (await told(client, "dispatch", work))["jobId"])
                assert (end["status"], end["description"]) == ("completed", work["description"]), end
                outputs.append(end["jobId"])

        async with anyio.create_task_group() as group:
            group.start_soon(one, 0)
            group.start_soon(one, 1)
        assert len(set(outputs)) == 2, outputs

    @asynccontextmanager
    async def changes():
        """A client, and what waits until its host has said that the tools changed."""
        news = anyio.Event()

        async def heard(message: Any) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                news.set()

        async def wait() -> None:
            nonlocal news
            await news.wait()
            news = anyio.Event()

        if way.is_modern:
            async with way.connect() as client, client.listen(tools_list_changed=True) as changed:
                yield client, lambda: anext(changed)
        else:
            async with way.connect(message_handler=heard) as client:
                yield client, wait

    async def members() -> None:
        key = f"new-python-{way.name.lower().replace(' ', '-')}"
        there = Path(PLAN["members"]) / key

        async def listed(client: Client) -> bool:
            return any(tool.name.startswith(f"{key}__") for tool in (await client.list_tools()).tools)

        async with changes() as (client, changed):
            assert not await listed(client)
            try:
                shutil.copytree(Path(PLAN["members"]) / TOOL["member"], there, ignore=NOT_INSTALLED)
                while not await listed(client):
                    await changed()
                assert await told(client, f"{key}__{TOOL['name']}", TOOL["input"]) == TOOL["output"]
            finally:
                shutil.rmtree(there)
            while await listed(client):
                await changed()

    # Over HTTP a member has endpoints of its own; over stdio `--member` leaves the names as they are.
    is_http = way.transport == "HTTP"

    async def toolbox() -> None:
        async with way.connect("toolbox") as own:
            called = TOOL["name"] if is_http else CALLED
            names = [tool.name for tool in (await own.list_tools()).tools]
            assert called in names and not any(name.endswith("dispatch") for name in names), names
            assert await told(own, called, TOOL["input"]) == TOOL["output"]

    async def bridge() -> None:
        async with way.connect("bridge") as bridge:
            prefix = "" if is_http else f"{WORKER}-dispatch__"
            names = sorted(tool.name for tool in (await bridge.list_tools()).tools)
            six = ["cancel", "delete", "dispatch", "list", "result", "status"]
            assert names == [prefix + name for name in six], names
            assert (await report(bridge, f"{prefix}dispatch", OWN_WORK | {"wait": True}))["status"] == "completed"

    async def alone() -> None:
        members = Path(PLAN["directory"]) / f"alone-python-{way.version}"
        for key in [TOOL["member"], WORKER]:
            shutil.copytree(Path(PLAN["members"]) / key, members / key, ignore=NOT_INSTALLED)
        async with way.connect("alone", str(members)) as client:
            assert await told(client, CALLED, TOOL["input"]) == TOOL["output"]
            end = await ended(client, (await told(client, "dispatch", WORK))["jobId"])
            assert end["status"] == "completed", end

    await go("works side by side with another of its kind", side_by_side)
    await go("is told when a member comes and when it goes", members)
    await go("speaks to a toolbox alone", toolbox)
    await go("speaks to a worker's bridge alone", bridge)
    if not is_http:
        await go("starts a server that is its own host", alone)


async def tasks(way: Way, go: Any) -> None:
    async def to_the_end() -> list[str]:
        extension = Tasks()
        async with way.connect(extensions=[extension]) as client:
            # Without `wait` there is nothing to wait for, and no task.
            assert (await told(client, "dispatch", WORK))["status"] == "running"
            assert not extension.seen, extension.seen
            end = await report(client, "dispatch", WORK | {"wait": True})
            assert end["status"] == "completed" and PLAN["found"] in end["output"], end
        assert extension.seen, "no task was made"
        return [task.status for task in extension.seen]

    async def cancelled() -> list[str]:
        extension = Tasks(cancel=True)
        async with way.connect(extensions=[extension]) as client:
            wait = ENDLESS | {"description": f"a task of python {way.name}", "wait": True}
            result = await client.call_tool("dispatch", wait)
            assert result.is_error, result
            assert extension.seen[-1].status == "cancelled", extension.seen
            # The task was the job.
            asked = {"detail": "detailed", "filter": wait["description"]}
            listed = await told(client, "list", asked)
            assert [job["status"] for job in listed["jobs"]] == ["cancelled"], listed
        return [task.status for task in extension.seen]

    async def outlives() -> None:
        extension = Tasks()
        description = f"outlives the connection of python {way.name}"
        wait = ENDLESS | {"description": description, "wait": True}
        async with way.connect(extensions=[extension]) as client:
            created = await client.session.call_tool("dispatch", wait, allow_claimed=True)
            assert isinstance(created, Created) and created.status == "working", created
        async with way.connect(extensions=[Tasks()]) as client:
            asked = TaskParams(taskId=created.taskId)
            task = await client.session.send_request(GetTask(params=asked), Task)
            assert (task.taskId, task.status) == (created.taskId, "working"), task
            await client.session.send_request(CancelTask(params=asked), types.Result)
            task = await client.session.send_request(GetTask(params=asked), Task)
            assert task.status == "cancelled", task

    async def unknown() -> int:
        async with way.connect(extensions=[Tasks()]) as client:
            asked = GetTask(params=TaskParams(taskId="../outside"))
            error = await refusal(client.session.send_request(asked, Task))
            assert error.code == -32602, error
            return error.code

    await go("follows a task to the end", to_the_end)
    await go("cancels a task", cancelled)
    await go("finds a task again on another connection", outlives)
    await go("is refused a task that does not exist", unknown)


async def main() -> None:
    for transport in ["HTTP", "stdio"]:
        for mode in ["legacy", "2026-07-28"]:
            await everything(Way(transport, mode))


anyio.run(main)
sys.exit(1 if failed else 0)

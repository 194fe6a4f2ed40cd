//! Reads `agent`, `dispatch_agents`, and the tables of the runtimes: `[extractive]`, `[claude]`, `[api]` with
//! `[[prices]]`, and `[scripted]`.

pub(crate) mod prices;
pub(crate) mod provider;
pub(crate) mod runtime;
pub(crate) mod runtime_options;
pub(crate) mod spend;

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use toml::Spanned;

use crate::{
    agents::{
        prices::{Price, Prices},
        provider::Provider,
        runtime::Runtime,
        runtime_options::{ApiOptions, ClaudeOptions, ScriptedOptions},
    },
    value::{Wrong, above_zero, key_source, price_of, text, written_table},
};

/// The settings of a runtime: `[extractive]`, `[claude]`, `[api]` with `[[prices]]`, or `[scripted]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeConfig<T> {
    /// `sessions`: the most sessions at a time; further sessions wait.
    pub sessions: u32,
    /// The runtime's other settings.
    pub options: T,
}

impl Default for RuntimeConfig<()> {
    fn default() -> Self {
        Self { sessions: 1024, options: () }
    }
}

impl Default for RuntimeConfig<ScriptedOptions> {
    fn default() -> Self {
        Self { sessions: 1024, options: ScriptedOptions::default() }
    }
}

impl Default for RuntimeConfig<ClaudeOptions> {
    /// The default allows few sessions: each is a process of some 200 MB.
    fn default() -> Self {
        let options = ClaudeOptions {
            command: "claude".into(),
            model: None,
            builtin_tools: false,
            bypass_permissions: false,
            resume: false,
            silence: Duration::from_secs(600),
            environment: Vec::new(),
            prices: Prices::default(),
            state: None,
        };
        Self { sessions: 4, options }
    }
}

impl Default for RuntimeConfig<ApiOptions> {
    fn default() -> Self {
        Self { sessions: 64, options: ApiOptions::new(Provider::Anthropic) }
    }
}

/// The runtime of this name; the error names `key` and the known runtimes.
pub(crate) fn runtime(key: &str, name: &Spanned<String>) -> Result<Runtime, Wrong> {
    name.get_ref().parse().map_err(|why| Wrong::at(name.span(), format!("{key}: {why}")))
}

/// `dispatch_agents`.
pub(crate) fn runtimes(names: &[Spanned<String>]) -> Result<BTreeSet<Runtime>, Wrong> {
    names.iter().map(|name| runtime("dispatch_agents", name)).collect()
}

/// Sessions on the built-in runtime.
#[derive(Default, Deserialize)]
pub(crate) struct WrittenExtractive {
    /// The most sessions at a time; further sessions wait. Default: `1024`.
    sessions: Option<Spanned<u32>>,
}

impl WrittenExtractive {
    pub(crate) fn read(self) -> Result<RuntimeConfig<()>, Wrong> {
        let default = RuntimeConfig::<()>::default();
        Ok(RuntimeConfig { sessions: above_zero("extractive.sessions", self.sessions, default.sessions)?, ..default })
    }
}

/// Sessions whose model is the script of a test file, which `guild test` describes.
#[derive(Default, Deserialize)]
pub(crate) struct WrittenScripted {
    /// The most sessions at a time; further sessions wait. Default: `1024`.
    sessions: Option<Spanned<u32>>,
    /// The test file. Sessions on this runtime need it.
    script: Option<PathBuf>,
    /// The name of a case of the file. By default it is the first with sessions.
    case: Option<Spanned<String>>,
}

impl WrittenScripted {
    pub(crate) fn read(self, base: &Path) -> Result<RuntimeConfig<ScriptedOptions>, Wrong> {
        let RuntimeConfig { sessions, .. } = RuntimeConfig::<ScriptedOptions>::default();
        let options = ScriptedOptions {
            script: self.script.map(|script| base.join(script)),
            case: self.case.map(|case| text("scripted.case", case)).transpose()?,
        };
        Ok(RuntimeConfig { sessions: above_zero("scripted.sessions", self.sessions, sessions)?, options })
    }
}

/// Sessions on the Claude Code command line.
#[derive(Default, Deserialize)]
pub(crate) struct WrittenClaude {
    /// The most sessions at a time; further sessions wait. Each is a process of some 200 MB. Default: `4`.
    sessions: Option<Spanned<u32>>,
    /// The program: a name that is looked up on the `PATH`, or a path. Default: `"claude"`.
    command: Option<Spanned<PathBuf>>,
    /// The model. Without this key, the CLI chooses it.
    model: Option<Spanned<String>>,
    /// Whether the CLI itself serves Read, Grep and Glob, on a copy of the read roots. Excludes
    /// `permissions = "bypassPermissions"`. Default: `false`.
    builtin_tools: Option<bool>,
    /// `"dontAsk"` or `"bypassPermissions"`. Neither asks a person. Default: `"dontAsk"`.
    permissions: Option<Spanned<String>>,
    /// Whether sessions are resumed after a restart, or at another host of the cluster. The CLI then keeps them in its own
    /// directory; one that it does not have is told from the job's transcript. Default: `false`, in a cluster `true`.
    resume: Option<bool>,
    /// The time without output after which the CLI counts as failed. Default: `600`.
    silence_seconds: Option<Spanned<u32>>,
    /// The names of further environment variables that the CLI is given. Default: `[]`.
    environment: Option<Vec<Spanned<String>>>,
}

impl WrittenClaude {
    pub(crate) fn read(
        written: Option<Spanned<Self>>,
        prices: Prices,
        base: &Path,
        in_cluster: bool,
    ) -> Result<RuntimeConfig<ClaudeOptions>, Wrong> {
        let (span, written) = written_table(written);
        let RuntimeConfig { sessions, options } = RuntimeConfig::<ClaudeOptions>::default();
        let sessions = above_zero("claude.sessions", written.sessions, sessions)?;
        let options = ClaudeOptions {
            command: written.command.map_or(Ok(options.command), |command| program(command, base))?,
            model: written.model.map(|model| text("claude.model", model)).transpose()?,
            builtin_tools: written.builtin_tools.unwrap_or_default(),
            bypass_permissions: written.permissions.as_ref().map_or(Ok(false), bypasses)?,
            resume: written.resume.unwrap_or(in_cluster),
            silence: seconds("claude.silence_seconds", written.silence_seconds, options.silence)?,
            environment: written.environment.into_iter().flatten().map(variable).collect::<Result<_, _>>()?,
            prices,
            state: options.state,
        };
        options.check().map_err(|why| Wrong::at(span, why))?;
        Ok(RuntimeConfig { sessions, options })
    }
}

/// `claude.permissions`: whether permissions are bypassed.
fn bypasses(permissions: &Spanned<String>) -> Result<bool, Wrong> {
    match permissions.get_ref().as_str() {
        "dontAsk" => Ok(false),
        "bypassPermissions" => Ok(true),
        other => {
            let why = format!(
                "claude.permissions: {other:?} is not a known mode; the modes are \"dontAsk\" and \"bypassPermissions\""
            );
            Err(Wrong::at(permissions.span(), why))
        }
    }
}

/// A program: a name that is looked up on the `PATH`, or a path. A relative path starts at the directory of
/// `guild.toml`.
fn program(command: Spanned<PathBuf>, base: &Path) -> Result<PathBuf, Wrong> {
    let span = command.span();
    let command = command.into_inner();
    let mut parts = command.components();
    match (parts.next(), parts.next()) {
        (None, _) => Err(Wrong::at(span, "claude.command is empty; write the program's name or its path")),
        (Some(Component::Normal(_)), None) => Ok(command),
        _ => Ok(base.join(command)),
    }
}

/// The name of a variable for the CLI's environment.
fn variable(name: Spanned<String>) -> Result<String, Wrong> {
    if name.get_ref().is_empty() || name.get_ref().contains(['=', '\0']) {
        let why = "claude.environment: a variable is named without its value, such as \"HTTPS_PROXY\"";
        return Err(Wrong::at(name.span(), why));
    }
    Ok(name.into_inner())
}

/// Sessions on a model provider over HTTP.
#[derive(Default, Deserialize)]
pub(crate) struct WrittenApi {
    /// The most sessions at a time; further sessions wait. Default: `64`.
    sessions: Option<Spanned<u32>>,
    /// The protocol: `"anthropic"`, `"openai"` (which many other providers speak), `"gemini"` or `"ollama"`. Default:
    /// `"anthropic"`.
    provider: Option<Spanned<String>>,
    /// The provider's address. Without this key, it is the usual address.
    base_url: Option<Spanned<String>>,
    /// The model of jobs whose plan names none. Without this key, each job's plan has to name a model.
    model: Option<Spanned<String>>,
    /// The environment variable with the key. Without `key_env` and `key_file`, it is the provider's usual variable.
    key_env: Option<Spanned<String>>,
    /// A file with the key, in place of `key_env`.
    key_file: Option<Spanned<PathBuf>>,
    /// The most tokens of one answer. Default: `8192`.
    max_output_tokens: Option<Spanned<u32>>,
    /// Time for one request, to the last byte of its answer. Default: `600`.
    request_seconds: Option<Spanned<u32>>,
    /// The number of times that a request is repeated after a temporary failure. Default: `5`.
    retries: Option<u32>,
    /// The most tokens that a job may use on models without a known price. Without this key, such models are refused.
    unknown_cost_tokens: Option<Spanned<u64>>,
}

/// A model's price in US dollars per million tokens. It takes precedence over the host's price list.
#[derive(Deserialize)]
pub(crate) struct WrittenPrice {
    /// The model's name, with or without its version, or a prefix of names followed by `*`.
    model: Spanned<String>,
    /// The price of input tokens.
    input: Spanned<f64>,
    /// The price of input tokens that the provider had cached. Without this key, it is that of `input`.
    cached_input: Option<Spanned<f64>>,
    /// The price of input tokens that the provider writes into its cache. Without this key, it is that of `input`.
    cache_write: Option<Spanned<f64>>,
    /// The price of output tokens.
    output: Spanned<f64>,
    /// The number of input tokens above which the price applies. Without this key, it applies to all requests.
    #[serde(default)]
    above_input_tokens: u64,
}

impl WrittenApi {
    pub(crate) fn read(
        written: Option<Spanned<Self>>,
        prices: Prices,
        base: &Path,
    ) -> Result<RuntimeConfig<ApiOptions>, Wrong> {
        let (span, written) = written_table(written);
        let span = written.base_url.as_ref().map_or(span, Spanned::span);
        let RuntimeConfig { sessions, options } = RuntimeConfig::<ApiOptions>::default();
        let sessions = above_zero("api.sessions", written.sessions, sessions)?;
        let tokens = |tokens| above_zero("api.unknown_cost_tokens", Some(tokens), 0);
        let options = ApiOptions {
            provider: written.provider.as_ref().map_or(Ok(options.provider), provider)?,
            base_url: written.base_url.map(Spanned::into_inner),
            model: written.model.map(|model| text("api.model", model)).transpose()?,
            key: key_source("api", written.key_env, written.key_file, base)?,
            max_output_tokens: above_zero(
                "api.max_output_tokens",
                written.max_output_tokens,
                options.max_output_tokens,
            )?,
            request: seconds("api.request_seconds", written.request_seconds, options.request)?,
            retries: written.retries.unwrap_or(options.retries),
            unknown_cost_tokens: written.unknown_cost_tokens.map(tokens).transpose()?,
            prices,
            first_pause: options.first_pause,
        };
        options.endpoint().map_err(|why| Wrong::at(span, why))?;
        Ok(RuntimeConfig { sessions, options })
    }
}

fn provider(name: &Spanned<String>) -> Result<Provider, Wrong> {
    Provider::named(name.get_ref()).ok_or_else(|| {
        let known = Provider::ALL.map(|provider| provider.facts().name).join(", ");
        Wrong::at(
            name.span(),
            format!("api.provider: {:?} is not a known provider; the providers are {known}", name.get_ref()),
        )
    })
}

/// A time in seconds.
fn seconds(name: &str, written: Option<Spanned<u32>>, default: Duration) -> Result<Duration, Wrong> {
    written.map_or(Ok(default), |value| Ok(Duration::from_secs(above_zero(name, Some(value), 0)?.into())))
}

/// Reads `[[prices]]`, which take precedence over the host's list.
pub(crate) fn prices(written: Vec<WrittenPrice>) -> Result<Prices, Wrong> {
    let mut prices: Vec<Price> = Vec::new();
    let mut last = 0..0;
    for WrittenPrice { model, input, cached_input, cache_write, output, above_input_tokens } in written {
        last = model.span();
        let twice = |price: &Price| price.model == *model.get_ref() && price.above_input_tokens == above_input_tokens;
        if prices.iter().any(twice) {
            let why = format!("prices.model: {:?} has two prices; remove one of them", model.get_ref());
            return Err(Wrong::at(model.span(), why));
        }
        let optional = |name, price: Option<Spanned<f64>>| price.map(|price| price_of(name, &price)).transpose();
        prices.push(Price {
            model: text("prices.model", model)?,
            input: price_of("prices.input", &input)?,
            cached_input: optional("prices.cached_input", cached_input)?,
            cache_write: optional("prices.cache_write", cache_write)?,
            output: price_of("prices.output", &output)?,
            above_input_tokens,
        });
    }
    Prices::new(prices).map_err(|why| Wrong::at(last, why))
}

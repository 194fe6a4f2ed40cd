//! Checks the sizes of a component's functions before a compiler sees them.
//!
//! A compiler's memory for a function can grow with the number of its locals times that of its loops. The compiler's
//! process is bounded, but this check rejects extreme components with an error that names the cause.

use guild_contract::Limits;
use wasmparser::{BinaryReaderError, FunctionBody, Operator, Parser, Payload};

/// Rejects a component with a function that exceeds the limits.
///
/// # Errors
///
/// Returns a text that names the function, its module, the limit and its value.
pub fn check(component: &[u8], limits: &Limits) -> Result<(), String> {
    let (mut module, mut function) = (0_u32, 0_u32);
    for payload in Parser::new(0).parse_all(component) {
        // The compiler reports invalid components with better errors.
        let Ok(payload) = payload else { return Ok(()) };
        match payload {
            Payload::CodeSectionStart { .. } => {
                module = module.saturating_add(1);
                function = 0;
            }
            Payload::CodeSectionEntry(body) => {
                if let Ok(Some(limit)) = beyond(&body, limits) {
                    return Err(format!("function {function} of its core module {module} {limit}"));
                }
                function = function.saturating_add(1);
            }
            _ => {}
        }
    }
    Ok(())
}

/// The limit that a function exceeds.
fn beyond(body: &FunctionBody<'_>, limits: &Limits) -> Result<Option<String>, BinaryReaderError> {
    let bytes = body.range().len() as u64;
    if bytes > limits.function_bytes {
        let (limit, most) = (Limits::cited("function_bytes"), limits.function_bytes);
        return Ok(Some(format!("has {bytes} bytes, more than {limit} = {most}")));
    }
    let mut locals = 0_u64;
    for declared in body.get_locals_reader()? {
        locals = locals.saturating_add(u64::from(declared?.0));
    }
    if locals > u64::from(limits.function_locals) {
        let (limit, most) = (Limits::cited("function_locals"), limits.function_locals);
        return Ok(Some(format!("has {locals} local variables, more than {limit} = {most}")));
    }
    // Each level takes two bytes, so most functions cannot nest too deep.
    if bytes <= u64::from(limits.function_nesting) {
        return Ok(None);
    }
    let mut depth = 0_u32;
    for operator in body.get_operators_reader()? {
        match operator? {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                depth = depth.saturating_add(1);
                if depth > limits.function_nesting {
                    let (limit, most) = (Limits::cited("function_nesting"), limits.function_nesting);
                    return Ok(Some(format!("nests deeper than {limit} = {most}")));
                }
            }
            Operator::End => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(None)
}

//! Finds the price of a model's tokens: the operator's own price, else the list price.

use guild_contract::Usage;
use serde::Deserialize;

use crate::agents::provider::{ListPrice, Provider};

/// The price of a model's tokens, in US dollars per million tokens: one `[[prices]]` of `guild.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The model: a name, which a version may follow (`gpt-5` also matches `gpt-5-2025-08-07`, but not `gpt-5-pro`), or
    /// a prefix of names with `*` at its end.
    pub model: String,
    /// The price of a request's tokens.
    pub input: f64,
    /// The price of a request's tokens that the provider had in its cache; by default that of `input`.
    #[serde(default)]
    pub cached_input: Option<f64>,
    /// The price of a request's tokens that the provider wrote to its cache; by default that of `input`.
    #[serde(default)]
    pub cache_write: Option<f64>,
    /// The price of an answer's tokens, including its reasoning.
    pub output: f64,
    /// The number of a request's tokens above which the price applies; 0 for all requests.
    #[serde(default)]
    pub above_input_tokens: u64,
}

impl Price {
    /// Checks that each price is a number, and not below zero. The error names the field.
    fn check(&self) -> Result<(), String> {
        if self.model.is_empty() {
            return Err("prices.model must name a model".to_owned());
        }
        let cached = self.cached_input.unwrap_or_default();
        let written = self.cache_write.unwrap_or_default();
        let fields =
            [("input", self.input), ("cached_input", cached), ("cache_write", written), ("output", self.output)];
        match fields.into_iter().find(|(_, usd)| !(usd.is_finite() && *usd >= 0.0)) {
            Some((field, usd)) => Err(format!("prices.{field} of {:?} must be a number from 0, not {usd}", self.model)),
            None => Ok(()),
        }
    }

    /// The specificity of the price for the model: the number of matching characters, and more for the exact name.
    fn closeness(&self, model: &str) -> Option<usize> {
        if let Some(start) = self.model.strip_suffix('*') {
            return model.starts_with(start).then_some(start.len() * 2);
        }
        let rest = model.strip_prefix(&*self.model)?;
        (rest.is_empty() || is_version(rest)).then_some(self.model.len() * 2 + 1)
    }

    fn is_free(&self) -> bool {
        let cache = self.cached_input.unwrap_or_default() + self.cache_write.unwrap_or_default();
        self.input + self.output + cache == 0.0
    }
}

/// Whether the rest of a name is a version: `-20250929`, `@20250929`, `-2025-08-07`, `-001` or `-latest`.
fn is_version(rest: &str) -> bool {
    let Some(version) = rest.strip_prefix(['-', '@']) else { return false };
    let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    // A short first number is a minor version, which belongs to another model.
    version == "latest"
        || (version.split('-').next().is_some_and(|first| first.len() >= 3) && version.split('-').all(digits))
}

/// The tokens of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// All tokens of the request, including those read from or written to the cache.
    pub input: u64,
    /// The tokens of `input` that the provider had in its cache.
    pub cached: u64,
    /// The tokens of `input` that the provider wrote to its cache.
    pub cache_write: u64,
    /// All tokens of the answer.
    pub output: u64,
}

impl Tokens {
    /// Converts the tokens to usage, without a turn.
    pub fn usage(self, cost_usd: Option<f64>) -> Usage {
        let Self { input: input_tokens, cached: cached_tokens, output: output_tokens, .. } = self;
        Usage { turns: 0, input_tokens, cached_tokens, output_tokens, cost_usd, known_cost_usd: None }
    }
}

/// The known prices of models.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    operators: Vec<Price>,
    list: Vec<Price>,
}

impl Default for Prices {
    /// The default has the list prices alone.
    fn default() -> Self {
        Self { operators: Vec::new(), list: list() }
    }
}

impl Prices {
    /// Combines the operator's prices and the list prices. A matching price of the operator's takes precedence over the
    /// list. Among several prices of one source, the most specific one is used.
    ///
    /// # Errors
    ///
    /// Returns an error that names the field when a price is not an amount of money.
    pub fn new(operators: Vec<Price>) -> Result<Self, String> {
        operators.iter().try_for_each(Price::check)?;
        Ok(Self { operators, list: list() })
    }

    /// Whether the price of a model is known.
    pub fn knows(&self, model: &str) -> bool {
        !self.of(model).is_empty()
    }

    /// Whether one of the operator's prices names a model.
    pub fn is_operators(&self, model: &str) -> bool {
        self.operators.iter().any(|price| price.closeness(model).is_some())
    }

    /// The full names of models that have prices: in the operator's prices, and in the list.
    pub fn named(&self) -> [impl Iterator<Item = &str>; 2] {
        [&self.operators, &self.list].map(|prices| {
            let names = prices.iter().map(|price| price.model.as_str());
            names.filter(|name| !name.ends_with('*'))
        })
    }

    /// Whether a model is known to cost nothing.
    pub fn is_free(&self, model: &str) -> bool {
        let prices = self.of(model);
        !prices.is_empty() && prices.iter().all(|price| price.is_free())
    }

    /// The prices of a model: one price, or one for each size of request.
    fn of(&self, model: &str) -> Vec<&Price> {
        let closest = |prices: &'_ Vec<Price>| prices.iter().filter_map(|price| price.closeness(model)).max();
        let prices = [&self.operators, &self.list].into_iter().find(|prices| closest(prices).is_some());
        prices.into_iter().flatten().filter(|price| price.closeness(model) == prices.and_then(closest)).collect()
    }

    /// The usage of one request, with its cost if the price is known.
    pub fn usage(&self, model: &str, tokens: Option<Tokens>) -> Usage {
        let cost_usd = match tokens {
            Some(tokens) => self.cost(model, tokens),
            None => self.is_free(model).then_some(0.0),
        };
        Usage { turns: 1, ..tokens.unwrap_or_default().usage(cost_usd) }
    }

    #[allow(clippy::cast_precision_loss, reason = "no request has 2^52 tokens")]
    fn cost(&self, model: &str, tokens: Tokens) -> Option<f64> {
        let fits = |price: &&&Price| price.above_input_tokens == 0 || tokens.input > price.above_input_tokens;
        let prices = self.of(model);
        let price = prices.iter().filter(fits).max_by_key(|price| price.above_input_tokens)?;
        let plain = tokens.input.saturating_sub(tokens.cached).saturating_sub(tokens.cache_write);
        let usd = plain as f64 * price.input
            + tokens.cached as f64 * price.cached_input.unwrap_or(price.input)
            + tokens.cache_write as f64 * price.cache_write.unwrap_or(price.input)
            + tokens.output as f64 * price.output;
        Some(usd / 1_000_000.0)
    }
}

/// The list prices of all providers.
fn list() -> Vec<Price> {
    let price = |&(model, above_input_tokens, input, cached, write, output): &ListPrice| Price {
        model: model.to_owned(),
        input,
        cached_input: Some(cached),
        cache_write: Some(write),
        output,
        above_input_tokens,
    };
    Provider::ALL.into_iter().flat_map(|provider| provider.facts().prices).map(price).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(model: &str, input: f64, output: f64) -> Price {
        let model = model.to_owned();
        Price { model, input, cached_input: None, cache_write: None, output, above_input_tokens: 0 }
    }

    fn cost(prices: &Prices, model: &str, tokens: Tokens) -> Option<f64> {
        prices.usage(model, Some(tokens)).cost_usd
    }

    const MILLION: Tokens = Tokens { input: 1_000_000, cached: 0, cache_write: 0, output: 0 };

    #[test]
    fn a_version_of_a_model_has_its_price_and_another_model_has_not() {
        let prices = Prices::default();
        for model in ["claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5@20250929"] {
            assert_eq!(cost(&prices, model, MILLION), Some(3.0), "{model}");
        }
        for model in ["gpt-5", "gpt-5-2025-08-07"] {
            assert_eq!(cost(&prices, model, MILLION), Some(1.25), "{model}");
        }
        assert_eq!(cost(&prices, "gpt-5-mini-2025-08-07", MILLION), Some(0.25));
        for (model, usd) in [("gpt-4o-2024-05-13", 5.0), ("gpt-4o-2024-08-06", 2.5), ("gpt-4o", 2.5)] {
            assert_eq!(cost(&prices, model, MILLION), Some(usd), "{model}");
        }
        for model in ["gpt-5-pro", "gpt-5.9", "claude-sonnet-4", "claude-opus-5-9-mini", "llama3.3", ""] {
            assert!(!prices.knows(model), "{model}");
        }
        // A minor version is another model: 5-5 is not a version of 5.
        assert_eq!(cost(&prices, "claude-opus-5-5-20260922", MILLION), Some(4.0));
        assert_eq!(cost(&prices, "claude-opus-5-9-20270101", MILLION), None);
    }

    #[test]
    fn the_operators_price_overrides_the_list_and_the_closest_of_them_wins() {
        let prices = Prices::new(vec![price("*", 0.0, 0.0), price("gpt-*", 7.0, 0.0), price("gpt-5", 9.0, 0.0)]);
        let prices = prices.unwrap();
        assert_eq!(cost(&prices, "gpt-5", MILLION), Some(9.0));
        assert_eq!(cost(&prices, "gpt-5-mini", MILLION), Some(7.0));
        assert_eq!(cost(&prices, "claude-sonnet-4-5", MILLION), Some(0.0));
        assert!(prices.is_free("llama3.3") && !prices.is_free("gpt-5"));
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let prices = Prices::default();
        let tokens = Tokens { input: 1000, cached: 600, cache_write: 300, output: 50 };
        let usage = prices.usage("claude-sonnet-4-5", Some(tokens));
        let usd = (100.0 * 3.0 + 600.0 * 0.3 + 300.0 * 3.75 + 50.0 * 15.0) / 1e6;
        assert!((usage.cost_usd.unwrap() - usd).abs() < 1e-12);
        assert_eq!((usage.turns, usage.input_tokens, usage.cached_tokens, usage.output_tokens), (1, 1000, 600, 50));
    }

    #[test]
    fn a_long_request_has_the_price_of_long_requests() {
        let prices = Prices::default();
        let at = |input| cost(&prices, "gemini-2.5-pro", Tokens { input, ..Tokens::default() });
        assert_eq!((at(200_000), at(400_000)), (Some(0.25), Some(1.0)));
    }

    #[test]
    fn without_a_count_the_cost_is_unknown_unless_the_model_is_free() {
        let prices = Prices::new(vec![price("local", 0.0, 0.0)]).unwrap();
        assert_eq!(prices.usage("gpt-5", None).cost_usd, None);
        assert_eq!(prices.usage("local", None).cost_usd, Some(0.0));
    }

    #[test]
    fn what_is_no_amount_of_money_is_refused() {
        for (bad, field) in [(f64::NAN, "input"), (-1.0, "input"), (f64::INFINITY, "input")] {
            assert!(Prices::new(vec![price("m", bad, 1.0)]).unwrap_err().contains(field));
        }
        assert!(Prices::new(vec![price("", 1.0, 1.0)]).unwrap_err().contains("prices.model"));
    }
}

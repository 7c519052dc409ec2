//! Settings as text: what serde reads and writes for a [`BreakerConfig`].
//! Every value passes through [`Scalar`], so that a refusal can name its field whatever the format.
//! The ranges are not here: reading ends in the builder, and so in the one validator.

mod hold;

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use super::{Backoff, BreakerConfig, BreakerConfigBuilder, ConfigError, RampUp};
use crate::policy::{SlowCall, TripPolicy, Window};
use hold::{HoldFields, hold};

/// The fields as they stand in a file; what is missing keeps its default.
#[derive(Default, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Fields {
    #[serde(deserialize_with = "trip", skip_serializing_if = "Option::is_none")]
    trip: Option<TripFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_timeout: Option<Scalar>,
    #[serde(skip_serializing_if = "Option::is_none")]
    break_duration: Option<Scalar>,
    #[serde(deserialize_with = "backoff", skip_serializing_if = "Option::is_none")]
    backoff: Option<BackoffFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter: Option<Scalar>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_probes: Option<Scalar>,
    #[serde(skip_serializing_if = "Option::is_none")]
    successes_to_close: Option<Scalar>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe_timeout: Option<Scalar>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_inconclusive: Option<Scalar>,
    #[serde(deserialize_with = "hold", skip_serializing_if = "Option::is_none")]
    hold: Option<HoldFields>,
    #[serde(deserialize_with = "ramp_up", skip_serializing_if = "Option::is_none")]
    ramp_up: Option<RampUpFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enforcement: Option<Scalar>,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum TripFields {
    ConsecutiveFailures {
        failures: Scalar,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<Scalar>,
    },
    FailureCount {
        failures: Scalar,
        within: Scalar,
        #[serde(default)]
        reset_on_success: Option<Scalar>,
    },
    FailureRate {
        rate: Scalar,
        minimum_calls: Scalar,
        #[serde(deserialize_with = "window")]
        window: WindowFields,
        #[serde(
            default,
            deserialize_with = "slow_call",
            skip_serializing_if = "Option::is_none"
        )]
        slow_call: Option<SlowCallFields>,
    },
    Custom,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum WindowFields {
    Calls(Scalar),
    Time(Scalar),
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SlowCallFields {
    duration: Scalar,
    rate: Scalar,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct BackoffFields {
    factor: Scalar,
    max: Scalar,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RampUpFields {
    duration: Scalar,
    initial_share: Scalar,
}

/// Reads a nested field, putting its name before whatever is wrong inside it.
fn named<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    name: &'static str,
    deserializer: D,
) -> Result<T, D::Error> {
    T::deserialize(deserializer).map_err(|error| de::Error::custom(format!("`{name}`: {error}")))
}

fn trip<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TripFields>, D::Error> {
    named("trip", deserializer)
}

fn backoff<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BackoffFields>, D::Error> {
    named("backoff", deserializer)
}

fn ramp_up<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RampUpFields>, D::Error> {
    named("ramp_up", deserializer)
}

fn window<'de, D: Deserializer<'de>>(deserializer: D) -> Result<WindowFields, D::Error> {
    named("window", deserializer)
}

fn slow_call<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SlowCallFields>, D::Error> {
    named("slow_call", deserializer)
}

/// Any single value a text format has.
#[derive(Clone)]
enum Scalar {
    Text(String),
    Flag(bool),
    Whole(u64),
    Negative(i64),
    Real(f64),
}

impl Scalar {
    fn of(span: Duration) -> Self {
        Self::Text(humantime::format_duration(span).to_string())
    }

    fn span(&self, field: &'static str) -> Result<Duration, ConfigError> {
        const RANGE: &str =
            "a span of time with its unit, such as \"30s\", \"250ms\" or \"1m 30s\"";
        match self {
            Self::Text(text) => humantime::parse_duration(text)
                .map_err(|error| ConfigError::new(field, self, format!("{RANGE} ({error})"))),
            _ => Err(ConfigError::new(field, self, RANGE)),
        }
    }

    fn count(&self, field: &'static str) -> Result<u32, ConfigError> {
        match self {
            Self::Whole(count) => u32::try_from(*count).ok(),
            _ => None,
        }
        .ok_or_else(|| {
            ConfigError::new(
                field,
                self,
                format!("a whole number from 1 to {}", u32::MAX),
            )
        })
    }

    #[expect(
        clippy::as_conversions,
        clippy::cast_precision_loss,
        reason = "only 0 and 1 are in range, and they are exact"
    )]
    fn number(&self, field: &'static str) -> Result<f64, ConfigError> {
        match self {
            Self::Real(number) => Ok(*number),
            Self::Whole(number) => Ok(*number as f64),
            Self::Negative(number) => Ok(*number as f64),
            _ => Err(ConfigError::new(field, self, "a number")),
        }
    }

    fn flag(&self, field: &'static str) -> Result<bool, ConfigError> {
        match self {
            Self::Flag(flag) => Ok(*flag),
            _ => Err(ConfigError::new(field, self, "true or false")),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Flag(flag) => flag.fmt(f),
            Self::Whole(number) => number.fmt(f),
            Self::Negative(number) => number.fmt(f),
            Self::Real(number) => number.fmt(f),
        }
    }
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Whole(number) => serializer.serialize_u64(*number),
            Self::Negative(number) => serializer.serialize_i64(*number),
            Self::Real(number) => serializer.serialize_f64(*number),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyScalar;

        impl Visitor<'_> for AnyScalar {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a single value")
            }

            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(text.to_owned()))
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Scalar, E> {
                Ok(Scalar::Flag(flag))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar::Whole(number))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
                Ok(u64::try_from(number).map_or(Scalar::Negative(number), Scalar::Whole))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar::Real(number))
            }
        }

        deserializer.deserialize_any(AnyScalar)
    }
}

impl TripFields {
    fn read(self) -> Result<TripPolicy, ConfigError> {
        Ok(match self {
            Self::ConsecutiveFailures { failures, within } => TripPolicy::ConsecutiveFailures {
                failures: failures.count("trip.failures")?,
                within: within
                    .map(|within| within.span("trip.within"))
                    .transpose()?,
            },
            Self::FailureCount {
                failures,
                within,
                reset_on_success,
            } => TripPolicy::FailureCount {
                failures: failures.count("trip.failures")?,
                within: within.span("trip.within")?,
                reset_on_success: match reset_on_success {
                    Some(flag) => flag.flag("trip.reset_on_success")?,
                    None => false,
                },
            },
            Self::FailureRate {
                rate,
                minimum_calls,
                window,
                slow_call,
            } => TripPolicy::FailureRate {
                rate: rate.number("trip.rate")?,
                minimum_calls: minimum_calls.count("trip.minimum_calls")?,
                window: match window {
                    WindowFields::Calls(calls) => Window::Calls(calls.count("trip.window.calls")?),
                    WindowFields::Time(span) => Window::Time(span.span("trip.window.time")?),
                },
                slow_call: match slow_call {
                    Some(slow) => Some(SlowCall {
                        duration: slow.duration.span("trip.slow_call.duration")?,
                        rate: slow.rate.number("trip.slow_call.rate")?,
                    }),
                    None => None,
                },
            },
            Self::Custom => {
                return Err(ConfigError::new(
                    "trip",
                    "\"custom\"",
                    "a built-in policy; a rule of one's own is set with the builder",
                ));
            }
        })
    }
}

impl From<&TripPolicy> for TripFields {
    fn from(policy: &TripPolicy) -> Self {
        match policy {
            TripPolicy::ConsecutiveFailures { failures, within } => Self::ConsecutiveFailures {
                failures: Scalar::Whole((*failures).into()),
                within: within.map(Scalar::of),
            },
            TripPolicy::FailureCount {
                failures,
                within,
                reset_on_success,
            } => Self::FailureCount {
                failures: Scalar::Whole((*failures).into()),
                within: Scalar::of(*within),
                reset_on_success: Some(Scalar::Flag(*reset_on_success)),
            },
            TripPolicy::FailureRate {
                rate,
                minimum_calls,
                window,
                slow_call,
            } => Self::FailureRate {
                rate: Scalar::Real(*rate),
                minimum_calls: Scalar::Whole((*minimum_calls).into()),
                window: match window {
                    Window::Calls(calls) => WindowFields::Calls(Scalar::Whole((*calls).into())),
                    Window::Time(span) => WindowFields::Time(Scalar::of(*span)),
                },
                slow_call: slow_call.map(|slow| SlowCallFields {
                    duration: Scalar::of(slow.duration),
                    rate: Scalar::Real(slow.rate),
                }),
            },
            TripPolicy::Custom(_) => Self::Custom,
        }
    }
}

impl Fields {
    fn read(self) -> Result<BreakerConfig, ConfigError> {
        let mut builder = BreakerConfigBuilder::default();
        if let Some(trip) = self.trip {
            builder.trip = trip.read()?;
        }
        if let Some(timeout) = self.call_timeout {
            builder.call_timeout = timeout.span("call_timeout")?;
        }
        if let Some(length) = self.break_duration {
            builder.break_duration = length.span("break_duration")?;
        }
        if let Some(backoff) = self.backoff {
            builder.backoff = Some(Backoff {
                factor: backoff.factor.number("backoff.factor")?,
                max: backoff.max.span("backoff.max")?,
            });
        }
        if let Some(jitter) = self.jitter {
            builder.jitter = jitter.number("jitter")?;
        }
        if let Some(probes) = self.max_probes {
            builder.max_probes = probes.count("max_probes")?;
        }
        if let Some(successes) = self.successes_to_close {
            builder.successes_to_close = successes.count("successes_to_close")?;
        }
        if let Some(timeout) = self.probe_timeout {
            builder.probe_timeout = Some(timeout.span("probe_timeout")?);
        }
        if let Some(probes) = self.max_inconclusive {
            builder.max_inconclusive = probes.count("max_inconclusive")?;
        }
        if let Some(hold) = self.hold {
            builder = builder.hold(hold.read()?);
        }
        if let Some(ramp_up) = self.ramp_up {
            builder = builder.ramp_up(RampUp {
                duration: ramp_up.duration.span("ramp_up.duration")?,
                initial_share: ramp_up.initial_share.number("ramp_up.initial_share")?,
            });
        }
        if let Some(share) = self.enforcement {
            builder.enforcement = share.number("enforcement")?;
        }
        builder.build()
    }
}

impl<'de> Deserialize<'de> for BreakerConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Fields::deserialize(deserializer)?
            .read()
            .map_err(de::Error::custom)
    }
}

impl Serialize for BreakerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Fields {
            trip: Some(self.trip().into()),
            call_timeout: Some(Scalar::of(self.call_timeout())),
            break_duration: Some(Scalar::of(self.break_duration())),
            backoff: self.backoff().map(|backoff| BackoffFields {
                factor: Scalar::Real(backoff.factor),
                max: Scalar::of(backoff.max),
            }),
            jitter: Some(Scalar::Real(self.jitter())),
            max_probes: Some(Scalar::Whole(self.max_probes().into())),
            successes_to_close: Some(Scalar::Whole(self.successes_to_close().into())),
            probe_timeout: Some(Scalar::of(self.probe_timeout())),
            max_inconclusive: Some(Scalar::Whole(self.max_inconclusive().into())),
            hold: self.hold().map(HoldFields::from),
            ramp_up: self.ramp_up().map(|ramp_up| RampUpFields {
                duration: Scalar::of(ramp_up.duration),
                initial_share: Scalar::Real(ramp_up.initial_share),
            }),
            enforcement: Some(Scalar::Real(self.enforcement())),
        }
        .serialize(serializer)
    }
}

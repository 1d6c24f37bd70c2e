//! The table.

use std::io::Write;

use anyhow::Result;
use serde_json::json;

use crate::limits::Limits;

/// What a figure must be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
    /// For information.
    None,
}

/// One figure.
#[derive(Debug)]
struct Row {
    what: String,
    unit: &'static str,
    median: f64,
    low: f64,
    high: f64,
    bar: Bar,
}

/// Every figure of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Adds a figure, measured once or several times.
    pub(crate) fn add(&mut self, what: &str, unit: &'static str, mut samples: Vec<f64>, bar: Bar) {
        samples.sort_by(f64::total_cmp);
        let (Some(&low), Some(&high)) = (samples.first(), samples.last()) else {
            return;
        };
        let median = samples[samples.len() / 2];
        self.rows.push(Row {
            what: what.into(),
            unit,
            median,
            low,
            high,
            bar,
        });
    }

    /// Prints the table, or JSON.
    pub(crate) fn print(&self, limits: &Limits, as_json: bool) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if as_json {
            writeln!(out, "{}", self.json(limits))?;
            return Ok(());
        }
        writeln!(
            out,
            "this machine: fdatasync p50 {:.3} ms, loopback round trip p50 {:.1} us (WebSocket {:.1} us), bare store {:.0} messages/s\n",
            limits.fdatasync.as_secs_f64() * 1e3,
            limits.round_trip.as_secs_f64() * 1e6,
            limits.websocket.as_secs_f64() * 1e6,
            limits.store_per_second
        )?;
        writeln!(
            out,
            "| what | median | low to high | bar | verdict |\n|---|---|---|---|---|"
        )?;
        for row in &self.rows {
            writeln!(
                out,
                "| {} | {} {} | {} to {} | {} | {} |",
                row.what,
                figure(row.median),
                row.unit,
                figure(row.low),
                figure(row.high),
                row.bar_text(),
                row.verdict()
            )?;
        }
        Ok(())
    }

    fn json(&self, limits: &Limits) -> serde_json::Value {
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "what": row.what, "unit": row.unit, "median": row.median, "low": row.low,
                    "high": row.high, "bar": row.bar_text(), "verdict": row.verdict(),
                })
            })
            .collect();
        json!({
            "fdatasync_p50_us": limits.fdatasync.as_secs_f64() * 1e6,
            "round_trip_p50_us": limits.round_trip.as_secs_f64() * 1e6,
            "websocket_round_trip_p50_us": limits.websocket.as_secs_f64() * 1e6,
            "bare_store_per_s": limits.store_per_second,
            "rows": rows,
        })
    }
}

impl Row {
    fn bar_text(&self) -> String {
        match self.bar {
            Bar::AtLeast(bar) => format!("at least {}", figure(bar)),
            Bar::AtMost(bar) => format!("at most {}", figure(bar)),
            Bar::None => String::new(),
        }
    }

    fn verdict(&self) -> &'static str {
        let holds = match self.bar {
            Bar::AtLeast(bar) => self.median >= bar,
            Bar::AtMost(bar) => self.median <= bar,
            Bar::None => return "",
        };
        if holds { "holds" } else { "misses" }
    }
}

/// A figure with three digits that count.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => {
            let digits = format!("{value:.0}");
            let mut out = String::new();
            for (n, c) in digits.chars().enumerate() {
                if n > 0 && (digits.len() - n).is_multiple_of(3) {
                    out.push(',');
                }
                out.push(c);
            }
            out
        }
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        v if v > 0.0 => format!("{value:.4}"),
        _ => "0".into(),
    }
}

//! The run as a picture: what the server did, where the breaker stood, and what became of the asks, over time.
//! What happened is known to `checkout.rs` and `checkout/story.rs`.

use std::fs;
use std::ops::Range;
use std::path::Path;

use actix_circuit_breaker::{Cause, CircuitState, Timestamp};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Failed;
use crate::server::Mode;
use crate::story::{Fate, Summary};

const SIZE: (u32, u32) = (1000, 460);
const LEFT: u32 = 70;
const RIGHT: i32 = 20;

const FITTING: &str =
    r#"<svg style="max-width:100%;height:auto" role="img" aria-label="A run of the example" "#;

/// The asks of so many seconds are one column.
const COLUMN: f64 = 0.1;

// A card of its own colour, so that it reads the same on light and dark pages. The colours of the asks can be
// told apart by those who see some colours alike, and in grey.
const CARD: RGBColor = RGBColor(0xfb, 0xfb, 0xf8);
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FAINT: RGBColor = RGBColor(0xd8, 0xd8, 0xd4);
const PAID: RGBColor = RGBColor(0x00, 0x72, 0xb2);
const FAILED: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
const REJECTED: RGBColor = RGBColor(0xa8, 0xa8, 0xa8);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A stretch of time with a name and a colour.
struct Stretch {
    span: Range<f64>,
    name: &'static str,
    colour: RGBColor,
}

/// Draws the run into that file.
pub(crate) fn draw(
    file: &Path,
    summary: &Summary<'_>,
    modes: &[(Timestamp, Mode)],
) -> Result<(), Failed> {
    let mut svg = String::new();
    paint(&mut svg, summary, modes)?;
    // Inside a page it takes no more room than there is.
    Ok(fs::write(file, svg.replacen("<svg ", FITTING, 1))?)
}

fn paint(
    svg: &mut String,
    summary: &Summary<'_>,
    modes: &[(Timestamp, Mode)],
) -> Result<(), Failed> {
    let end = summary.story.seconds(summary.story.now());
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&CARD)?;
    let (head, rest) = root.split_vertically(56);
    let (server, rest) = rest.split_vertically(52);
    let (breaker, asks) = rest.split_vertically(64);

    let title = "One run of the example checkout: a payment server fails in three ways";
    head.draw(&Text::new(title, (18, 12), font(17).color(&INK)))?;
    legend(&head)?;
    band(
        &server,
        "server",
        &server_stretches(summary, modes, end),
        end,
    )?;
    band(&breaker, "breaker", &breaker_stretches(summary, end), end)?;
    probes(&breaker, summary, end)?;
    columns(&asks, summary, end)?;
    root.present()?;
    Ok(())
}

fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

fn centred(size: u32) -> TextStyle<'static> {
    font(size).pos(Pos::new(HPos::Center, VPos::Center))
}

fn legend(area: &Area<'_>) -> Result<(), Failed> {
    let mut x = 18;
    for (colour, name, width) in [
        (PAID, "paid", 70),
        (FAILED, "failed or timed out", 160),
        (
            REJECTED,
            "rejected by the breaker: the server is left alone",
            345,
        ),
    ] {
        area.draw(&Rectangle::new([(x, 38), (x + 12, 50)], colour.filled()))?;
        area.draw(&Text::new(name, (x + 18, 38), font(13)))?;
        x += width;
    }
    area.draw(&Text::new("▲ probe, half-open", (x, 38), font(13)))?;
    Ok(())
}

fn server_stretches(summary: &Summary<'_>, modes: &[(Timestamp, Mode)], end: f64) -> Vec<Stretch> {
    let starts = modes.iter().map(|(at, _)| summary.story.seconds(*at));
    let ends = starts.clone().skip(1).chain([end]);
    starts
        .zip(ends)
        .zip(modes)
        .map(|((start, end), (_, mode))| {
            let (name, colour) = match mode {
                Mode::Healthy => ("healthy", RGBColor(0xc9, 0xe3, 0xf2)),
                Mode::Failing => ("answers errors", RGBColor(0xf6, 0xc9, 0xa8)),
                Mode::Hanging => ("hangs", RGBColor(0xf0, 0xb4, 0x8a)),
                Mode::Down => ("is down", RGBColor(0xe8, 0x9c, 0x6a)),
            };
            Stretch {
                span: start..end,
                name,
                colour,
            }
        })
        .collect()
}

fn breaker_stretches(summary: &Summary<'_>, end: f64) -> Vec<Stretch> {
    let changes = summary.events.states();
    let starts = changes.iter().map(|(at, _)| summary.story.seconds(*at));
    let ends = starts.clone().skip(1).chain([end]);
    starts
        .zip(ends)
        .zip(&changes)
        .map(|((start, end), (_, state))| {
            let (name, colour) = match state {
                CircuitState::Closed => ("closed", RGBColor(0xc9, 0xe3, 0xf2)),
                CircuitState::Open => ("open", RGBColor(0xe8, 0x9c, 0x6a)),
                CircuitState::HalfOpen => ("half-open", RGBColor(0xf5, 0xe6, 0x6a)),
                _ => ("forced open", RGBColor(0xdd, 0xa6, 0xc6)),
            };
            Stretch {
                span: start..end,
                name,
                colour,
            }
        })
        .collect()
}

/// Where an instant is, in pixels from the left.
fn x_of(at: f64, end: f64) -> i32 {
    let width = f64::from(SIZE.0) - f64::from(LEFT) - f64::from(RIGHT);
    pixels(f64::from(LEFT) + width * at / end)
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "a place on the picture"
)]
fn pixels(at: f64) -> i32 {
    at.round() as i32
}

fn band(area: &Area<'_>, name: &str, stretches: &[Stretch], end: f64) -> Result<(), Failed> {
    let (top, bottom) = (14, 44);
    let style = font(13).pos(Pos::new(HPos::Right, VPos::Center));
    area.draw(&Text::new(name, (x_of(0.0, end) - 8, 29), style))?;
    // The short ones last: a round of probes can be over in a millisecond, and shows all the same.
    let is_short = |stretch: &&Stretch| stretch.span.end - stretch.span.start < 0.05;
    let long = stretches.iter().filter(|stretch| !is_short(stretch));
    for Stretch { span, name, colour } in long.chain(stretches.iter().filter(is_short)) {
        let (left, right) = (x_of(span.start, end), x_of(span.end, end));
        let right = right.max(left + 4);
        area.draw(&Rectangle::new(
            [(left, top), (right, bottom)],
            colour.filled(),
        ))?;
        if right - left > 40 {
            area.draw(&Text::new(
                *name,
                (i32::midpoint(left, right), 29),
                centred(13),
            ))?;
        }
    }
    Ok(())
}

fn probes(area: &Area<'_>, summary: &Summary<'_>, end: f64) -> Result<(), Failed> {
    for at in summary.events.all(Cause::ProbeDue) {
        let x = x_of(summary.story.seconds(at), end);
        let corners = vec![(x, 47), (x - 5, 56), (x + 5, 56)];
        area.draw(&Polygon::new(corners, INK.filled()))?;
    }
    Ok(())
}

fn columns(area: &Area<'_>, summary: &Summary<'_>, end: f64) -> Result<(), Failed> {
    let mut columns: Vec<[u32; 3]> = Vec::new();
    for (at, fate) in summary.fates() {
        let column = usize::try_from(pixels((at / COLUMN).floor()))?;
        if columns.len() <= column {
            columns.resize(column + 1, [0; 3]);
        }
        let fates = columns.get_mut(column).ok_or("resized")?;
        let [paid, failed, rejected] = fates;
        *match fate {
            Fate::Paid => paid,
            Fate::Failed => failed,
            Fate::Rejected => rejected,
        } += 1;
    }
    let highest = columns.iter().map(|fates| fates.iter().sum::<u32>()).max();
    let highest = f64::from(highest.unwrap_or(1)) + 0.5;
    let mut chart = ChartBuilder::on(area)
        .margin_right(RIGHT)
        .margin_top(6)
        .set_label_area_size(LabelAreaPosition::Left, LEFT)
        .set_label_area_size(LabelAreaPosition::Bottom, 44)
        .build_cartesian_2d(0.0..end, 0.0..highest)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .x_labels(12)
        .y_labels(4)
        .x_label_formatter(&|at| format!("{at:.0}"))
        .y_label_formatter(&|asks| format!("{asks:.0}"))
        .label_style(font(12))
        .axis_desc_style(font(13))
        .x_desc("seconds; a column is the asks made in 0.1 s")
        .draw()?;
    let mut left = 0.0;
    for fates in columns {
        let mut bottom = 0.0;
        for (asks, colour) in fates.into_iter().zip([PAID, FAILED, REJECTED]) {
            let top = bottom + f64::from(asks);
            if asks > 0 {
                let corners = [(left + 0.01, bottom), (left + COLUMN - 0.01, top)];
                chart.draw_series([Rectangle::new(corners, colour.filled())])?;
            }
            bottom = top;
        }
        left += COLUMN;
    }
    Ok(())
}

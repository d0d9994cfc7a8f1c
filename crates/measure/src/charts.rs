//! Charts as SVG. Told apart by shade and mark, so that they stay readable in print.

use crate::fio::Bucket;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::ops::Range;

/// Dark to light: told apart in grey, and by those who see red and green alike.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x1b, 0x3a, 0x6b),
    RGBColor(0xd9, 0x7b, 0x0f),
    RGBColor(0x2a, 0x8c, 0x82),
    RGBColor(0xa6, 0x4b, 0x7d),
    RGBColor(0x6f, 0xa8, 0xdc),
    RGBColor(0x80, 0x80, 0x80),
];
const BAR_HEIGHT: u32 = 26;
const BARS_WIDTH: u32 = 420;
const LINES: (u32, u32) = (560, 320);
const FONT: &str = "sans-serif";

/// A curve.
pub struct Line {
    /// What it is called.
    pub name: String,
    /// Its points, in order of x; all are positive.
    pub points: Vec<(f64, f64)>,
}

/// One bar for each name, with its figure.
///
/// # Panics
/// Never: text is drawn into memory.
pub fn bars(bars: &[(String, f64)]) -> String {
    let mut svg = String::new();
    {
        let height = BAR_HEIGHT * bars.len() as u32 + 6;
        let area = SVGBackend::with_string(&mut svg, (BARS_WIDTH, height)).into_drawing_area();
        draw_bars(&area, bars).expect("text is drawn into memory");
        area.present().expect("text is drawn into memory");
    }
    svg
}

type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn draw_bars(area: &Drawing<'_>, bars: &[(String, f64)]) -> Drawn {
    let largest = bars.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let font = (FONT, 13).into_font();
    for (index, (name, value)) in bars.iter().enumerate() {
        let top = (BAR_HEIGHT * index as u32 + 3) as i32;
        let bottom = top + BAR_HEIGHT as i32 - 6;
        // The longest leaves room for its figure.
        let right = 150 + (value / largest * 190.0) as i32;
        let short: String = name.chars().take(22).collect();
        area.draw(&Text::new(short, (0, top + 3), font.clone()))?;
        area.draw(&Rectangle::new([(150, top), (right.max(151), bottom)], COLOURS[index % COLOURS.len()].filled()))?;
        area.draw(&Text::new(crate::table::figure(*value), (right + 6, top + 3), font.clone()))?;
    }
    Ok(())
}

/// Curves over logarithmic axes, which depths and latencies are read on. Nothing if there is no point.
///
/// # Panics
/// Never: text is drawn into memory.
pub fn lines(x: &str, y: &str, lines: &[Line]) -> String {
    let mut svg = String::new();
    let all = || lines.iter().flat_map(|line| line.points.iter().copied());
    if all().next().is_none() {
        return svg;
    }
    let range = |of: fn((f64, f64)) -> f64| {
        let (least, most) = (all().map(of).fold(f64::INFINITY, f64::min), all().map(of).fold(0.0, f64::max));
        (least * 0.8)..(most * 1.25).max(least)
    };
    {
        let area = SVGBackend::with_string(&mut svg, LINES).into_drawing_area();
        draw_lines(&area, (x, y), range(|point| point.0), range(|point| point.1), lines)
            .expect("text is drawn into memory");
        area.present().expect("text is drawn into memory");
    }
    svg
}

/// How latencies are spread: share of I/Os, in percent, that took about so long.
pub fn histogram(targets: &[(String, &[Bucket])]) -> String {
    let line = |(name, buckets): &(String, &[Bucket])| {
        let all: u64 = buckets.iter().map(|bucket| bucket.ios).sum();
        let share = |bucket: &Bucket| (bucket.up_to_us, bucket.ios as f64 * 100.0 / all as f64);
        let points = buckets.iter().filter(|bucket| bucket.ios > 0).map(share).collect();
        Line { name: name.clone(), points }
    };
    lines("latency, µs", "% of I/Os", &targets.iter().map(line).collect::<Vec<_>>())
}

fn draw_lines(area: &Drawing<'_>, axes: (&str, &str), x: Range<f64>, y: Range<f64>, lines: &[Line]) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(38)
        .y_label_area_size(64)
        .build_cartesian_2d(x.log_scale(), y.log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.15))
        .label_style((FONT, 12))
        .x_desc(axes.0)
        .y_desc(axes.1)
        .x_label_formatter(&|value| crate::table::figure(*value))
        .y_label_formatter(&|value| crate::table::figure(*value))
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?
            .label(line.name.as_str())
            .legend(move |(x, y)| mark((x + 10, y), index, colour));
        chart.draw_series(line.points.iter().map(|point| mark(*point, index, colour)))?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 12))
        .position(SeriesLabelPosition::UpperLeft)
        .draw()
}

/// Each curve has a mark of its own.
fn mark<C, DB: DrawingBackend>(at: C, index: usize, colour: RGBColor) -> DynElement<'static, DB, C>
where
    C: Clone + 'static,
{
    match index % 3 {
        0 => Circle::new(at, 4, colour.filled()).into_dyn(),
        1 => TriangleMarker::new(at, 5, colour.filled()).into_dyn(),
        _ => Cross::new(at, 4, colour.stroke_width(2)).into_dyn(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_says_its_figures_and_names() {
        let svg = bars(&[("a<b".to_owned(), 1234.0), ("other".to_owned(), 5.0)]);
        assert!(svg.starts_with("<svg") && svg.contains("1,234") && svg.contains("a&lt;b"), "{svg}");
        let line = Line { name: "curve".to_owned(), points: vec![(1.0, 10.0), (256.0, 900.0)] };
        assert!(lines("depth", "µs", &[line]).contains("curve"));
        assert!(lines("depth", "µs", &[]).is_empty());
    }

    #[test]
    fn one_point_is_a_chart_too() {
        let line = Line { name: "curve".to_owned(), points: vec![(1.0, 10.0)] };
        assert!(lines("depth", "µs", &[line]).contains("<circle"));
    }
}

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
const OVER_TIME: (u32, u32) = (440, 260);
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

/// A figure over seconds, with gaps where there is none.
pub struct Course {
    /// What it is called.
    pub name: String,
    /// Seconds, and the figure.
    pub points: Vec<(f64, Option<f64>)>,
}

impl Course {
    /// Its pieces between gaps.
    fn pieces(&self) -> Vec<Vec<(f64, f64)>> {
        let mut pieces = vec![Vec::new()];
        for (at, value) in &self.points {
            match value {
                Some(value) => pieces[0].push((*at, *value)),
                None if !pieces[0].is_empty() => pieces.insert(0, Vec::new()),
                None => {}
            }
        }
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

/// Figures over time from 0 on, with a numbered line at each mark. Nothing if there is no figure.
///
/// # Panics
/// Never: text is drawn into memory.
pub fn over_time(y: &str, courses: &[Course], marks: &[f64], is_logarithmic: bool) -> String {
    let mut svg = String::new();
    let end = courses.iter().flat_map(|course| &course.points).map(|(at, _)| *at).fold(0.0, f64::max);
    let scale = |value: f64| if is_logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value };
    let values = || courses.iter().flat_map(|course| &course.points).filter_map(|(_, value)| value.map(scale));
    if values().next().is_none() || end <= 0.0 {
        return svg;
    }
    let most = values().fold(f64::NEG_INFINITY, f64::max);
    let range = match is_logarithmic {
        true => values().fold(f64::INFINITY, f64::min).floor()..(most + 0.1).ceil(),
        // With room for the numbers of the marks.
        false => 0.0..(most * 1.15).max(f64::MIN_POSITIVE),
    };
    {
        let area = SVGBackend::with_string(&mut svg, OVER_TIME).into_drawing_area();
        let lines: Vec<Pieces<'_>> = courses
            .iter()
            .map(|course| {
                let scaled = |piece: Vec<(f64, f64)>| piece.into_iter().map(|(at, value)| (at, scale(value))).collect();
                (course.name.as_str(), course.pieces().into_iter().map(scaled).collect())
            })
            .collect();
        draw_over_time(&area, y, (0.0..end, range), &lines, (marks, is_logarithmic))
            .expect("text is drawn into memory");
        area.present().expect("text is drawn into memory");
    }
    svg
}

type Pieces<'a> = (&'a str, Vec<Vec<(f64, f64)>>);

fn draw_over_time(
    area: &Drawing<'_>,
    y: &str,
    (over, range): (Range<f64>, Range<f64>),
    lines: &[Pieces<'_>],
    (marks, is_logarithmic): (&[f64], bool),
) -> Drawn {
    let (bottom, top) = (range.start, range.end);
    let decimals = usize::from(over.end < 5.0);
    let mut chart =
        ChartBuilder::on(area).margin(8).x_label_area_size(38).y_label_area_size(66).build_cartesian_2d(over, range)?;
    let figure = |value: &f64| crate::table::figure(if is_logarithmic { 10_f64.powf(*value) } else { *value });
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.15))
        .label_style((FONT, 14))
        .x_desc("s")
        .y_desc(y)
        .y_labels(if is_logarithmic { (top - bottom).round() as usize + 1 } else { 6 })
        .x_label_formatter(&|at| format!("{at:.decimals$}"))
        .y_label_formatter(&figure)
        .draw()?;
    for (index, (name, pieces)) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        for (number, piece) in pieces.iter().enumerate() {
            // One answer between two gaps is no line, and is to be seen.
            let dots = piece.iter().filter(|_| piece.len() == 1).map(|at| Circle::new(*at, 2, colour.filled()));
            chart.draw_series(dots)?;
            let drawn = chart.draw_series(LineSeries::new(piece.iter().copied(), colour.stroke_width(2)))?;
            if number == 0 && lines.len() > 1 {
                drawn.label(*name).legend(move |at| mark((at.0 + 10, at.1), index, colour));
            }
        }
    }
    for (number, at) in marks.iter().enumerate() {
        chart.draw_series([PathElement::new([(*at, bottom), (*at, top)], BLACK.mix(0.5))])?;
        // Those that follow closely stand below each other.
        let height = top - (top - bottom) * 0.06 * (number % 4) as f64;
        let label = Text::new((number + 1).to_string(), (*at, height), (FONT, 14).into_font());
        chart.draw_series([label])?;
    }
    if lines.len() > 1 {
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font((FONT, 14))
            .position(SeriesLabelPosition::LowerRight)
            .draw()?;
    }
    Ok(())
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
    fn a_gap_in_time_is_no_line() {
        let course = |points: Vec<(f64, Option<f64>)>| Course { name: "p99".to_owned(), points };
        let with_gap = course(vec![(0.0, Some(1.0)), (1.0, Some(2.0)), (2.0, None), (3.0, Some(5.0))]);
        assert_eq!(with_gap.pieces(), [vec![(3.0, 5.0)], vec![(0.0, 1.0), (1.0, 2.0)]]);
        for is_logarithmic in [false, true] {
            let svg = over_time("µs", &[course(with_gap.points.clone())], &[1.5, 1.6], is_logarithmic);
            assert!(svg.starts_with("<svg") && svg.contains(">\n1\n<") && svg.contains(">\n2\n<"), "{svg}");
        }
        assert!(over_time("µs", &[course(vec![(0.0, None), (1.0, None)])], &[0.5], true).is_empty());
        assert!(over_time("µs", &[course(vec![(0.0, Some(0.0)), (1.0, Some(0.0))])], &[], false).contains("<svg"));
    }

    #[test]
    fn one_point_is_a_chart_too() {
        let line = Line { name: "curve".to_owned(), points: vec![(1.0, 10.0)] };
        assert!(lines("depth", "µs", &[line]).contains("<circle"));
    }
}

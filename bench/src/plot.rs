//! Figures as SVG.

use std::fs;
use std::path::Path;

use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use celeris_cli::Failure;

const SIZE: (u32, u32) = (860, 520);

/// Colours that are distinguishable with the common colour blindnesses (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(120, 120, 120),
];

/// A line of a figure.
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// Points in ascending `x`; both coordinates must be positive on logarithmic axes.
    pub points: Vec<(f64, f64)>,
}

/// A line chart.
pub struct Figure<'a> {
    /// The title.
    pub title: &'a str,
    /// Label of the horizontal axis.
    pub x: &'a str,
    /// Label of the vertical axis.
    pub y: &'a str,
    pub series: Vec<Series>,
}

/// Whether the points of lines are marked.
#[derive(Clone, Copy, PartialEq)]
enum Points {
    Marked,
    Plain,
}

/// The chart type of plotters.
type Chart<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;

impl Figure<'_> {
    /// Writes the figure with logarithmic axes to `path`, creating its folder.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn draw(&self, path: &Path) -> Result<(), Failure> {
        let mut svg = String::new();
        self.render(&mut svg).map_err(Failure::other)?;
        write(path, svg)
    }

    /// Like [`Figure::draw`], with linear axes that start at zero and without marked points.
    ///
    /// # Errors
    /// As [`Figure::draw`].
    pub fn draw_linear(&self, path: &Path) -> Result<(), Failure> {
        let mut svg = String::new();
        self.render_linear(&mut svg).map_err(Failure::other)?;
        write(path, svg)
    }

    fn render(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let ((x_min, x_max), (y_min, y_max)) = self.bounds();
        let mut chart = self
            .builder(&root)
            .build_cartesian_2d((x_min..x_max).log_scale(), (y_min / 1.5..y_max * 1.5).log_scale())?;
        self.fill(&mut chart, Points::Marked)?;
        root.present()?;
        Ok(())
    }

    fn render_linear(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let ((_, x_max), (_, y_max)) = self.bounds();
        // Room for the legend above the lines.
        let mut chart = self.builder(&root).build_cartesian_2d(0.0..x_max, 0.0..y_max * 1.6)?;
        self.fill(&mut chart, Points::Plain)?;
        root.present()?;
        Ok(())
    }

    fn bounds(&self) -> ((f64, f64), (f64, f64)) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        (bounds(points().map(|p| p.0)), bounds(points().map(|p| p.1)))
    }

    fn builder<'a, 'b>(
        &self,
        root: &'a DrawingArea<SVGBackend<'b>, plotters::coord::Shift>,
    ) -> ChartBuilder<'a, 'a, SVGBackend<'b>> {
        let mut builder = ChartBuilder::on(root);
        builder.caption(self.title, ("sans-serif", 20)).margin(16).x_label_area_size(44).y_label_area_size(72);
        builder
    }

    fn fill<'a, 'b: 'a, X, Y>(
        &self,
        chart: &mut Chart<'a, 'b, X, Y>,
        points: Points,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .label_style(("sans-serif", 14))
            .light_line_style(WHITE)
            .x_label_formatter(&|value| label(*value))
            .y_label_formatter(&|value| label(*value))
            .draw()?;
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let style = colour.stroke_width(2);
            chart
                .draw_series(LineSeries::new(series.points.iter().copied(), style))?
                .label(&series.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
            if points == Points::Marked {
                chart.draw_series(series.points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font(("sans-serif", 14))
            .draw()?;
        Ok(())
    }
}

fn write(path: &Path, svg: String) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, svg));
    written.map_err(|error| Failure::bad_input(format!("{}: {error}", path.display())))
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(min, max), value| (min.min(value), max.max(value)))
}

fn label(value: f64) -> String {
    if value >= 1.0 || value == 0.0 {
        format!("{value}")
    } else {
        format!("{value:.6}").trim_end_matches('0').to_owned()
    }
}

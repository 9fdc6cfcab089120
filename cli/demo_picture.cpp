#include "demo_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "svg.hpp"
#include "terminal.hpp"

namespace kronsparse::cli {
namespace {

// Blue and orange of Okabe and Ito's palette, told apart by every kind of colour vision.
constexpr std::string_view background = "#fcfcfa";
constexpr std::string_view ink = "#1b1f24";
constexpr std::string_view muted = "#5f6873";
constexpr std::string_view grid = "#e3e5e1";
constexpr std::string_view matrix_paper = "#f1f2ee";
constexpr std::string_view sparse_colour = "#0072b2";
constexpr std::string_view dense_colour = "#e69f00";

constexpr double width = 1280;
constexpr double margin = 48;
constexpr double matrix_size = 212;
constexpr double chart_left = 600;
constexpr double chart_right = width - margin;
constexpr double speedup_width = 84;
constexpr double layer_height = 76;
constexpr double top = 150;

/// The nonzeros of a pattern in a square: filled blocks when d = 1, otherwise
/// the diagonals that the entries line up on. True to scale but for the lines'
/// width, which is what a screen can show.
void draw_support(Svg& svg, const Pattern& pattern, double x, double y) {
  svg.rect(x, y, matrix_size, matrix_size, matrix_paper);
  const double row = matrix_size / static_cast<double>(pattern.rows());
  const double col = matrix_size / static_cast<double>(pattern.cols());
  for (std::int64_t i = 0; i < pattern.a; ++i) {
    const double block_x = x + col * static_cast<double>(i * pattern.c * pattern.d);
    const double block_y = y + row * static_cast<double>(i * pattern.b * pattern.d);
    if (pattern.d == 1) {
      svg.rect(block_x, block_y, col * static_cast<double>(pattern.c), row * static_cast<double>(pattern.b),
               sparse_colour);
      continue;
    }
    // Entries (k, l, j) with one k - l form one line: j runs along it, then (k, l) moves to (k+1, l+1).
    for (std::int64_t offset = 1 - pattern.c; offset < pattern.b; ++offset) {
      const std::int64_t k = std::max<std::int64_t>(offset, 0);
      const std::int64_t l = k - offset;
      const auto length = static_cast<double>(std::min(pattern.b - k, pattern.c - l) * pattern.d);
      const double x1 = block_x + col * static_cast<double>(l * pattern.d);
      const double y1 = block_y + row * static_cast<double>(k * pattern.d);
      svg.line(x1, y1, x1 + col * length, y1 + row * length, sparse_colour, std::max(0.7, col));
    }
  }
  svg.frame(x, y, matrix_size, matrix_size, muted, 0.8);
}

void draw_matrix_caption(Svg& svg, double x, double y, const std::string& title, const std::string& details) {
  svg.text(x, y + matrix_size + 22, title, {.size = 14, .bold = true});
  svg.text(x, y + matrix_size + 40, details, {.size = 12.5, .colour = muted});
}

void draw_factors(Svg& svg, const Chain& chain) {
  const double second_x = margin + matrix_size + 48;
  const double second_y = top + matrix_size + 82;
  const auto details = [](const Pattern& pattern) {
    return fmt::format("{} values, {:.3g}% of the entries", grouped(pattern.nnz()), 100 * pattern.density());
  };
  svg.text(margin, top - 20, "The layer W = K₁ K₂", {.size = 16, .bold = true});
  draw_support(svg, chain[0], margin, top);
  draw_matrix_caption(svg, margin, top, fmt::format("K₁: {}", chain[0].to_string()), details(chain[0]));
  svg.text(second_x - 24, top + matrix_size / 2 + 9, "×",
           {.size = 28, .colour = muted, .anchor = Svg::Anchor::middle});
  draw_support(svg, chain[1], second_x, top);
  draw_matrix_caption(svg, second_x, top, fmt::format("K₂: {}", chain[1].to_string()), details(chain[1]));

  svg.text(margin - 24, second_y + matrix_size / 2 + 9, "=",
           {.size = 28, .colour = muted, .anchor = Svg::Anchor::middle});
  draw_support(svg, {1, chain.rows(), chain.cols(), 1}, margin, second_y);
  draw_matrix_caption(svg, margin, second_y, "W: every entry is filled",
                      fmt::format("{} entries", grouped(chain.rows() * chain.cols())));
  const double dense_values = static_cast<double>(chain.rows()) * static_cast<double>(chain.cols());
  const double share = static_cast<double>(chain.nnz()) / dense_values;
  svg.text(second_x, second_y + 56, fmt::format("{:.3g}%", 100 * share),
           {.size = 44, .colour = sparse_colour, .bold = true});
  svg.text(second_x, second_y + 82, "of the parameters", {.size = 15});
  svg.text(second_x, second_y + 103, "and of the arithmetic", {.size = 15});
  svg.text(second_x, second_y + 136, fmt::format("{} values", grouped(chain.nnz())),
           {.size = 12.5, .colour = muted});
  svg.text(second_x, second_y + 154, fmt::format("instead of {}", grouped(chain.rows() * chain.cols())),
           {.size = 12.5, .colour = muted});
}

/// 1, 2 or 5 times a power of ten, so that three to six steps cover `range`.
double axis_step(double range) {
  const double raw = range / 6;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

void draw_legend(Svg& svg, double y) {
  double x = chart_left;
  for (const auto& [colour, label] :
       {std::pair{dense_colour, "dense product"}, {sparse_colour, "kronsparse"}}) {
    svg.rect(x, y - 11, 13, 13, colour, 2);
    svg.text(x + 20, y, label, {.size = 13.5});
    x += 140;
  }
  svg.text(chart_right, y, "speed-up", {.size = 13, .colour = muted, .anchor = Svg::Anchor::end});
}

void draw_bars(Svg& svg, std::span<const LayerBars> layers) {
  double slowest = 0;
  for (const LayerBars& layer : layers)
    slowest = std::max({slowest, layer.dense_seconds, layer.sparse_seconds});
  const double label_room = 84;
  const double scale = (chart_right - speedup_width - label_room - chart_left) / slowest;
  const double chart_top = top + 34;
  const double chart_bottom = chart_top + layer_height * static_cast<double>(layers.size());

  svg.text(chart_left, top - 20, "Time to multiply a batch: shorter is better", {.size = 16, .bold = true});
  draw_legend(svg, top + 10);
  const double step = axis_step(slowest);
  for (int tick = 0; tick * step <= slowest * 1.0001; ++tick) {
    const double x = chart_left + tick * step * scale;
    svg.line(x, chart_top, x, chart_bottom, grid, 1);
    svg.text(x, chart_bottom + 18, tick == 0 ? "0" : duration_text(tick * step),
             {.size = 12, .colour = muted, .anchor = Svg::Anchor::middle});
  }
  double y = chart_top;
  for (const LayerBars& layer : layers) {
    svg.text(chart_left, y + 20, layer.title, {.size = 14, .bold = true, .quiet_suffix = layer.details});
    double bar_y = y + 28;
    for (const auto& [seconds, colour] :
         {std::pair{layer.dense_seconds, dense_colour}, {layer.sparse_seconds, sparse_colour}}) {
      const double length = std::max(1.5, seconds * scale);
      svg.rect(chart_left, bar_y, length, 15, colour, 2);
      svg.text(chart_left + length + 8, bar_y + 12, duration_text(seconds), {.size = 12.5});
      bar_y += 18;
    }
    svg.text(chart_right, y + 55, fmt::format("{:.1f}×", layer.dense_seconds / layer.sparse_seconds),
             {.size = 24, .colour = sparse_colour, .bold = true, .anchor = Svg::Anchor::end});
    y += layer_height;
  }
}

}  // namespace

std::string draw_demo(const Chain& monarch, std::span<const LayerBars> layers, const std::string& caption) {
  const double chart_height = 34 + layer_height * static_cast<double>(layers.size()) + 40;
  const double height = top + std::max(chart_height, 2 * matrix_size + 82 + 60) + 66;
  const std::string title =
      fmt::format("A {} × {} layer from two Kronecker-sparse factors", monarch.rows(), monarch.cols());
  Svg svg(width, height, background, title);
  svg.text(margin, 62, title, {.size = 28, .colour = ink, .bold = true});
  svg.text(margin, 90, caption, {.size = 14, .colour = muted});
  draw_factors(svg, monarch);
  draw_bars(svg, layers);
  const Svg::TextStyle note{.size = 12, .colour = muted};
  svg.text(margin, height - 42,
           "Dense: the full matrix of the same size, multiplied by kronsparse's own best implementation "
           "(pattern 1xMxNx1).",
           note);
  svg.text(margin, height - 24,
           "Medians; every result checked against the reference. Supports are to scale, "
           "their lines thickened.",
           note);
  return svg.document();
}

}  // namespace kronsparse::cli

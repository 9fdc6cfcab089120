#include "svg.hpp"

#include <fmt/format.h>

namespace kronsparse::cli {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char character : text) {
    switch (character) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += character;
    }
  }
  return out;
}

std::string_view name(Svg::Anchor anchor) {
  switch (anchor) {
    case Svg::Anchor::middle:
      return "middle";
    case Svg::Anchor::end:
      return "end";
    default:
      return "start";
  }
}

}  // namespace

Svg::Svg(double width, double height, std::string_view background, std::string_view title)
    : body_(fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:g}" height="{1:g}" )"
                        R"(viewBox="0 0 {0:g} {1:g}" role="img" )"
                        R"(font-family="Inter, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif">)"
                        "\n"
                        "<title>{2}</title>\n",
                        width, height, escaped(title))) {
  rect(0, 0, width, height, background);
}

void Svg::rect(double x, double y, double width, double height, std::string_view fill, double radius) {
  body_ += fmt::format(R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="{}")", x, y, width,
                       height, fill);
  if (radius > 0) body_ += fmt::format(R"( rx="{:.2f}")", radius);
  body_ += "/>\n";
}

void Svg::frame(double x, double y, double width, double height, std::string_view stroke,
                double stroke_width) {
  body_ +=
      fmt::format(R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="none" stroke="{}" )"
                  R"(stroke-width="{:.2f}"/>)"
                  "\n",
                  x, y, width, height, stroke, stroke_width);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view stroke, double stroke_width) {
  body_ += fmt::format(R"(<line x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}" stroke="{}" )"
                       R"(stroke-width="{:.2f}"/>)"
                       "\n",
                       x1, y1, x2, y2, stroke, stroke_width);
}

void Svg::text(double x, double y, std::string_view content, const TextStyle& style) {
  body_ += fmt::format(R"(<text x="{:.2f}" y="{:.2f}" font-size="{:g}" fill="{}")", x, y, style.size,
                       style.colour);
  if (style.bold) body_ += R"( font-weight="600")";
  if (style.anchor != Anchor::start) body_ += fmt::format(R"( text-anchor="{}")", name(style.anchor));
  body_ += fmt::format(">{}", escaped(content));
  if (!style.quiet_suffix.empty()) {
    body_ += fmt::format(R"(<tspan dx="10" font-size="{:g}" font-weight="400" fill="#5f6873">{}</tspan>)",
                         style.size - 1.5, escaped(style.quiet_suffix));
  }
  body_ += "</text>\n";
}

}  // namespace kronsparse::cli

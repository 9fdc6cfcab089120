// Builds a self-contained SVG picture, element by element.
#pragma once

#include <string>
#include <string_view>

namespace kronsparse::cli {

class Svg {
 public:
  enum class Anchor { start, middle, end };
  struct TextStyle {
    double size = 13;
    std::string_view colour = "#1b1f24";
    bool bold = false;
    Anchor anchor = Anchor::start;
    std::string_view quiet_suffix = {};  ///< follows on the same line, smaller and grey
  };

  Svg(double width, double height, std::string_view background, std::string_view title);

  void rect(double x, double y, double width, double height, std::string_view fill, double radius = 0);
  /// A rectangle's border alone.
  void frame(double x, double y, double width, double height, std::string_view stroke, double stroke_width);
  void line(double x1, double y1, double x2, double y2, std::string_view stroke, double stroke_width);
  /// `y` is the baseline. Markup characters in the text are escaped.
  void text(double x, double y, std::string_view content, const TextStyle& style);

  /// The finished document.
  [[nodiscard]] std::string document() const { return body_ + "</svg>\n"; }

 private:
  std::string body_;
};

}  // namespace kronsparse::cli

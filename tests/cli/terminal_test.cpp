// Tables, numbers, pictures and timing.
#include "terminal.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "kronsparse/error.hpp"
#include "svg.hpp"
#include "timing.hpp"

namespace kronsparse::cli {
namespace {

/// A stream that is no terminal.
class PlainStream {
 public:
  [[nodiscard]] std::FILE* get() const noexcept { return stream_.get(); }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream_{std::tmpfile(), std::fclose};
};

TEST(Terminal, TableAlignsColumns) {
  Table table({{"name"}, {"n", Table::Align::right}, {"verdict"}});
  table.add_row({"a", "1", "ok"});
  table.add_row({"longer ×", "100", "\x1b[32mok\x1b[0m"});
  EXPECT_EQ(table.render(PlainStream().get()),
            "name        n  verdict\n"
            "a           1  ok\n"
            "longer ×  100  \x1b[32mok\x1b[0m\n");
  EXPECT_THROW(table.add_row({"too short"}), Error);
}

TEST(Terminal, NoColourWithoutATerminal) {
  EXPECT_EQ(coloured("ok", Colour::green, PlainStream().get()), "ok");
}

TEST(Terminal, NumbersForPeople) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(duration_text(1.5), "1.5 s");
  EXPECT_EQ(duration_text(0.00123), "1.23 ms");
  EXPECT_EQ(duration_text(0.99996), "1 s");
  EXPECT_EQ(duration_text(0.000999), "999 us");
  EXPECT_EQ(duration_text(4.5e-6), "4.5 us");
  EXPECT_EQ(duration_text(2000), "2000 s");
}

TEST(Terminal, SvgEscapesText) {
  Svg svg(10, 10, "#ffffff", "a < b");
  svg.text(0, 0, "\"x\" & <script>", {.quiet_suffix = ">"});
  const std::string document = svg.document();
  EXPECT_EQ(document.find("<script>"), std::string::npos);
  EXPECT_NE(document.find("&quot;x&quot; &amp; &lt;script&gt;"), std::string::npos);
  EXPECT_NE(document.find("<title>a &lt; b</title>"), std::string::npos);
}

TEST(Timing, CountsRunsAndOrdersQuantiles) {
  int calls = 0;
  const Timing timing([&] { ++calls; }, {.min_seconds = 0, .min_runs = 11});
  EXPECT_EQ(timing.seconds().size(), 11U);
  EXPECT_EQ(calls, 12);  // one to warm up
  EXPECT_LE(timing.quantile(0), timing.quantile(0.25));
  EXPECT_LE(timing.quantile(0.25), timing.median());
  EXPECT_LE(timing.median(), timing.quantile(1));
}

}  // namespace
}  // namespace kronsparse::cli

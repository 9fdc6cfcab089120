// Measured times of a kernel's ways, in a CSV file: problem, the columns of the label, predicted_us,
// measured_us. A line before the header says which GPU it was. What comes after measured_us is not read.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

#include "cuda/host/runtime.hpp"
#include "kronsparse/problem.hpp"
#include "subjects.hpp"

namespace kronsparse::sweep {

struct Row {
  std::size_t problem;  ///< of Rows::problems
  std::string label;
  double seconds;
};

struct Rows {
  cuda::GpuFacts facts;
  std::vector<Problem> problems;
  std::vector<Row> rows;
};

/// The GPU of files that do not say it: NVIDIA's H200.
[[nodiscard]] cuda::GpuFacts h200_facts();

void write_header(std::ostream& out, const Subject& subject, const cuda::GpuFacts& facts);
void write_row(std::ostream& out, const Problem& problem, const std::string& label, double predicted_seconds,
               double measured_seconds);
/// Error invalid_argument, with the line, where the file is not one of this kernel.
[[nodiscard]] Rows read_rows(std::istream& in, const Subject& subject);

}  // namespace kronsparse::sweep

// kronsparse_fit KERNEL < rows.csv: constants that come nearest to measured times. Needs no GPU.
#include <cstdio>
#include <iostream>

#include "cuda/host/runtime.hpp"
#include "fit.hpp"
#include "kronsparse/error.hpp"

int main(int count, char** arguments) {
  using namespace kronsparse;
  if (count != 2) {
    std::fputs("usage: kronsparse_fit KERNEL < rows.csv\n", stderr);
    return 2;
  }
  try {
    const sweep::Subject& subject = sweep::subject(arguments[1]);
    const sweep::Rows rows = sweep::read_rows(std::cin, subject);
    const sweep::Fit fit = sweep::fit(subject, rows, cuda::tuning_of(rows.facts));
    std::printf("gpu: %s\nrows: %zu of %zu problems", rows.facts.name.c_str(), fit.used,
                rows.problems.size());
    if (fit.unknown > 0) std::printf("; %zu rows of ways that there are no more", fit.unknown);
    std::printf(
        "\nbefore: %s\n  kept out: %s\nfitted: %s\n  kept out: %s\nconstants:", to_string(fit.before).c_str(),
        to_string(fit.kept_before).c_str(), to_string(fit.after).c_str(), to_string(fit.kept_after).c_str());
    for (const double constant : fit.constants) std::printf(" %.4g", constant);
    std::puts("");
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "kronsparse_fit: %s\n", error.what());
    return 1;
  }
}

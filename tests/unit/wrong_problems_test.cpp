// Patterns, chains and problems that are none, each with its exact error code and message.
#include <limits>
#include <string>
#include <vector>

#include "wrong_calls.hpp"

namespace kronsparse {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

void parse(const std::string& problem) { static_cast<void>(Problem::parse(problem)); }

void validate(const std::function<void(Problem&)>& change) {
  Problem problem = Problem::parse(text);
  change(problem);
  problem.validate();
}

const std::string problem_words =
    "; the words are dtype (f32, f64, f16, bf16, complex64, complex128), layout (batch_first, batch_last), "
    "B=n, "
    "axbxcxd or several of them joined by '*', operation (multiply, transposed, adjoint, gradient), mode "
    "(fp32, ieee, tf32), cols_stride=n, "
    "rows_stride=n, +bias, +activation (none, relu, gelu, gelu_tanh, silu)";
std::vector<WrongCall> wrong_patterns() {
  return {
      {"pattern of zero", ErrorCode::invalid_argument, "pattern: b of 4x0x3x2 is 0, must be at least 1",
       [] { (void)Pattern::parse("4x0x3x2"); }},
      {"pattern below zero", ErrorCode::invalid_argument, "pattern: a of -4x1x3x2 is -4, must be at least 1",
       [] {
         Pattern{-4, 1, 3, 2}.validate();
       }},
      {"pattern that overflows", ErrorCode::overflow,
       "pattern: 4294967296x4294967296x1x1 has too many values, their bytes must fit in 63 bits",
       [] {
         Pattern{std::int64_t{1} << 32, std::int64_t{1} << 32, 1, 1}.validate();
       }},
      {"pattern with a number that overflows", ErrorCode::overflow,
       "pattern: '99999999999999999999' in '99999999999999999999x1x1x1' does not fit in 63 bits",
       [] { (void)Pattern::parse("99999999999999999999x1x1x1"); }},
      {"pattern of three", ErrorCode::parse,
       "pattern: '1x2x3' is not four numbers joined by 'x', as in 2x3x4x5",
       [] { (void)Pattern::parse("1x2x3"); }},
      {"pattern of five", ErrorCode::parse, "pattern: '4x5' in '1x2x3x4x5'" + number_rule,
       [] { (void)Pattern::parse("1x2x3x4x5"); }},
      {"pattern with a sign", ErrorCode::parse, "pattern: '-4' in '-4x1x3x2'" + number_rule,
       [] { (void)Pattern::parse("-4x1x3x2"); }},
      {"pattern with control characters", ErrorCode::parse,
       "pattern: '1\\x0a' in '1\\x0ax1x1x1'" + number_rule, [] { (void)Pattern::parse("1\nx1x1x1"); }},
      {"chain of nothing", ErrorCode::invalid_argument, "chain: no factors given, must have at least one",
       [] { (void)Chain(std::vector<Pattern>{}); }},
      {"chain that does not fit", ErrorCode::size_mismatch,
       "chain: factor 0 (1x2x3x4) has 12 columns, must have as many as factor 1 (1x2x3x4) has rows, 8",
       [] { (void)Chain::parse("1x2x3x4*1x2x3x4"); }},
      {"monarch that does not divide", ErrorCode::invalid_argument,
       "monarch: blocks 5 must divide rows 10 and cols 12", [] { (void)Chain::monarch(10, 12, 5); }},
      {"monarch of nothing", ErrorCode::invalid_argument,
       "monarch: rows 10, cols 0 and blocks 5 must each be at least 1",
       [] { (void)Chain::monarch(10, 0, 5); }},
      {"butterfly of 12", ErrorCode::invalid_argument,
       "butterfly: n is 12, must be a power of two, at least 2", [] { (void)Chain::butterfly(12); }},
      {"butterfly of 1", ErrorCode::invalid_argument, "butterfly: n is 1, must be a power of two, at least 2",
       [] { (void)Chain::butterfly(1); }},
  };
}

std::vector<WrongCall> wrong_problems() {
  return {
      {"unknown word", ErrorCode::parse,
       "problem: unknown word 'fast' in 'f32 batch_first B=7 2x3x4x5 fast'" + problem_words,
       [] { parse(text + " fast"); }},
      {"word twice", ErrorCode::parse,
       "problem: 'f64' in 'f32 batch_first B=7 2x3x4x5 f64' gives the dtype a second time, allowed is one",
       [] { parse(text + " f64"); }},
      {"no dtype", ErrorCode::parse, "problem: 'batch_first B=7 2x3x4x5' lacks a dtype, as in f32",
       [] { parse("batch_first B=7 2x3x4x5"); }},
      {"no layout", ErrorCode::parse, "problem: 'f32 B=7 2x3x4x5' lacks a layout, batch_first or batch_last",
       [] { parse("f32 B=7 2x3x4x5"); }},
      {"no batch", ErrorCode::parse, "problem: 'f32 batch_first 2x3x4x5' lacks a batch, as in B=64",
       [] { parse("f32 batch_first 2x3x4x5"); }},
      {"no pattern", ErrorCode::parse, "problem: 'f32 batch_first B=7' lacks a pattern, as in 2x3x4x5",
       [] { parse("f32 batch_first B=7"); }},
      {"empty text", ErrorCode::parse, "problem: '' lacks a pattern, as in 2x3x4x5", [] { parse(""); }},
      {"long text", ErrorCode::parse,
       "problem: unknown word '" + std::string(80, 'q') + "'... (100000 characters) in '" +
           std::string(80, 'q') + "'... (100000 characters)" + problem_words,
       [] { parse(std::string(100000, 'q')); }},
      {"negative batch in text", ErrorCode::parse,
       "batch: '-7' in 'f32 batch_first B=-7 2x3x4x5'" + number_rule,
       [] { parse("f32 batch_first B=-7 2x3x4x5"); }},
      {"batch that overflows", ErrorCode::overflow,
       "batch: '9223372036854775808' in 'f32 batch_first B=9223372036854775808 2x3x4x5' does not fit in 63 "
       "bits",
       [] { parse("f32 batch_first B=9223372036854775808 2x3x4x5"); }},
      {"bytes that overflow", ErrorCode::overflow,
       "batch: the 9223372036854775807 x 40 matrix with row stride 40 of f32 batch_first "
       "B=9223372036854775807 "
       "2x3x4x5 is too large, its bytes must fit in 63 bits",
       [] { validate([](Problem& p) { p.batch = largest; }); }},
      {"negative batch", ErrorCode::invalid_argument, "batch: -1 given, must be at least 0",
       [] { validate([](Problem& p) { p.batch = -1; }); }},
      {"short cols_stride", ErrorCode::invalid_argument,
       "cols_stride: 39 given, must be 0 (dense) or at least the row length 40",
       [] { validate([](Problem& p) { p.cols_stride = 39; }); }},
      {"negative rows_stride", ErrorCode::invalid_argument,
       "rows_stride: -30 given, must be 0 (dense) or at least the row length 30",
       [] { validate([](Problem& p) { p.rows_stride = -30; }); }},
      {"dtype that is none", ErrorCode::invalid_argument,
       "dtype: the number 9 given, must be one of f32, f64, f16, bf16, complex64, complex128",
       [] { validate([](Problem& p) { p.dtype = static_cast<DType>(9); }); }},
      {"layout that is none", ErrorCode::invalid_argument,
       "layout: the number 9 given, must be one of batch_first, batch_last",
       [] { validate([](Problem& p) { p.layout = static_cast<Layout>(9); }); }},
      {"operation that is none", ErrorCode::invalid_argument,
       "operation: the number 9 given, must be one of multiply, transposed, adjoint, gradient",
       [] { validate([](Problem& p) { p.operation = static_cast<Operation>(9); }); }},
      {"activation that is none", ErrorCode::invalid_argument,
       "activation: the number 9 given, must be one of none, relu, gelu, gelu_tanh, silu",
       [] { validate([](Problem& p) { p.activation = static_cast<Activation>(9); }); }},
      {"mode that is none", ErrorCode::invalid_argument,
       "mode: the number 9 given, must be one of fp32, ieee, tf32",
       [] { validate([](Problem& p) { p.mode = static_cast<Mode>(9); }); }},
      {"bias on transposed", ErrorCode::invalid_argument,
       "bias: given with operation transposed, allowed with multiply only",
       [] { parse("transposed f32 batch_first B=7 2x3x4x5 +bias"); }},
      {"activation on gradient", ErrorCode::invalid_argument,
       "activation: relu given with operation gradient, allowed with multiply only",
       [] { parse("gradient f32 batch_first B=7 2x3x4x5 +relu"); }},
      {"activation of complex", ErrorCode::invalid_argument,
       "activation: gelu given with dtype complex64, allowed with real dtypes only",
       [] { parse("complex64 batch_first B=7 2x3x4x5 +gelu"); }},
      {"mode on f64", ErrorCode::invalid_argument, "mode: tf32 given with dtype f64, allowed with f32 only",
       [] { parse("f64 tf32 batch_first B=7 2x3x4x5"); }},
      {"unknown dtype", ErrorCode::parse,
       "dtype: 'float' given, must be one of f32, f64, f16, bf16, complex64, complex128",
       [] { (void)parse_dtype("float"); }},
      {"unknown layout", ErrorCode::parse, "layout: 'rows' given, must be one of batch_first, batch_last",
       [] { (void)parse_layout("rows"); }},
      {"unknown operation", ErrorCode::parse,
       "operation: 'add' given, must be one of multiply, transposed, adjoint, gradient",
       [] { (void)parse_operation("add"); }},
      {"unknown activation", ErrorCode::parse,
       "activation: 'tanh' given, must be one of none, relu, gelu, gelu_tanh, silu",
       [] { (void)parse_activation("tanh"); }},
      {"unknown mode", ErrorCode::parse, "mode: 'fast' given, must be one of fp32, ieee, tf32",
       [] { (void)parse_mode("fast"); }},
  };
}

INSTANTIATE_TEST_SUITE_P(Pattern, WrongCalls, testing::ValuesIn(wrong_patterns()), test_name);
INSTANTIATE_TEST_SUITE_P(Problem, WrongCalls, testing::ValuesIn(wrong_problems()), test_name);

}  // namespace
}  // namespace kronsparse

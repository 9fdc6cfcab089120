/* Every function of kronsparse.h from C, and how each of them fails. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kronsparse/kronsparse.h"

static int failures = 0;

static void expect(int holds, const char* what, int line) {
  if (holds) return;
  fprintf(stderr, "c_api_test.c:%d: %s (last error: %s)\n", line, what, kronsparse_last_error());
  ++failures;
}
#define EXPECT(condition) expect(condition, #condition, __LINE__)

static void expect_failure(kronsparse_status actual, kronsparse_status status, const char* message,
                           int line) {
  if (actual == status && strcmp(kronsparse_last_error(), message) == 0) return;
  fprintf(stderr, "c_api_test.c:%d: %s: %s\n  expected %s: %s\n", line, kronsparse_status_name(actual),
          kronsparse_last_error(), kronsparse_status_name(status), message);
  ++failures;
}
#define EXPECT_FAILURE(call, status, message) expect_failure(call, status, message, __LINE__)

#define TEXT "f32 batch_first B=2 1x2x3x1 +bias"
static const float values[6] = {1, 2, 3, 4, 5, 6};
static const float x[6] = {1, 1, 1, 1, 0, -1};
static const float bias[2] = {10, 20};

static kronsparse_problem parsed(const char* text) {
  kronsparse_problem problem;
  memset(&problem, 0, sizeof problem);
  EXPECT(kronsparse_problem_parse(text, &problem) == KRONSPARSE_OK);
  return problem;
}

/* An enum field with a number that C allows and the library must refuse. */
static void set_number(void* field, int number) { memcpy(field, &number, sizeof number); }

static void test_names(void) {
  kronsparse_status odd;
  EXPECT(strlen(kronsparse_version()) >= 5);
  EXPECT(strcmp(kronsparse_last_error(), "") == 0);
  EXPECT(strcmp(kronsparse_status_name(KRONSPARSE_OK), "ok") == 0);
  EXPECT(strcmp(kronsparse_status_name(KRONSPARSE_INVALID_ARGUMENT), "invalid_argument") == 0);
  EXPECT(strcmp(kronsparse_status_name(KRONSPARSE_INTERNAL), "internal") == 0);
  set_number(&odd, 77);
  EXPECT(strcmp(kronsparse_status_name(odd), "unknown") == 0);
  set_number(&odd, -1);
  EXPECT(strcmp(kronsparse_status_name(odd), "unknown") == 0);
}

static void test_problem(void) {
  static const char* const texts[] = {TEXT, "gradient complex128 batch_last B=0 2x3x4x5",
                                      "adjoint f32 tf32 batch_last B=7 2x3x4x5 cols_stride=9 rows_stride=8",
                                      "f16 batch_first B=25088 8x64x64x16 +bias +gelu_tanh"};
  kronsparse_problem problem = parsed(TEXT);
  kronsparse_problem untouched;
  char text[256];
  size_t index;
  EXPECT(problem.a == 1 && problem.b == 2 && problem.c == 3 && problem.d == 1 && problem.batch == 2);
  EXPECT(problem.dtype == KRONSPARSE_F32 && problem.layout == KRONSPARSE_BATCH_FIRST);
  EXPECT(problem.operation == KRONSPARSE_MULTIPLY && problem.mode == KRONSPARSE_MODE_FP32);
  EXPECT(problem.bias == 1 && problem.activation == KRONSPARSE_NONE);
  for (index = 0; index < sizeof texts / sizeof *texts; ++index) {
    problem = parsed(texts[index]);
    EXPECT(kronsparse_problem_print(&problem, text, sizeof text) == KRONSPARSE_OK);
    EXPECT(strcmp(text, texts[index]) == 0);
    EXPECT(kronsparse_problem_print(&problem, text, strlen(texts[index]) + 1) == KRONSPARSE_OK);
  }

  /* The longest text there is. */
  problem = parsed("transposed complex128 batch_first B=1 1x1x1x1");
  problem.a = problem.b = problem.c = problem.d = problem.batch = INT64_MIN;
  problem.cols_stride = problem.rows_stride = INT64_MIN;
  problem.bias = 1;
  problem.activation = KRONSPARSE_GELU_TANH;
  problem.mode = KRONSPARSE_MODE_TF32;
  EXPECT(kronsparse_problem_print(&problem, text, 256) == KRONSPARSE_OK);

  memset(&untouched, 0x5A, sizeof untouched);
  problem = untouched;
  EXPECT_FAILURE(kronsparse_problem_parse("f32 batch_first B=2", &problem), KRONSPARSE_PARSE,
                 "problem: 'f32 batch_first B=2' lacks a pattern, as in 2x3x4x5");
  EXPECT_FAILURE(kronsparse_problem_parse("f32 batch_first B=2 1x0x1x1", &problem),
                 KRONSPARSE_INVALID_ARGUMENT, "pattern: b of 1x0x1x1 is 0, must be at least 1");
  EXPECT_FAILURE(kronsparse_problem_parse(NULL, &problem), KRONSPARSE_BAD_POINTER,
                 "text: null given, must not be null");
  EXPECT(memcmp(&problem, &untouched, sizeof problem) == 0);
  EXPECT_FAILURE(kronsparse_problem_parse(TEXT, NULL), KRONSPARSE_BAD_POINTER,
                 "problem: null given, must not be null");

  problem = parsed(TEXT);
  memset(text, 'z', sizeof text);
  EXPECT_FAILURE(kronsparse_problem_print(&problem, text, strlen(TEXT)), KRONSPARSE_SIZE_MISMATCH,
                 "size: 33 bytes given, must be at least 34");
  EXPECT_FAILURE(kronsparse_problem_print(&problem, text, 0), KRONSPARSE_SIZE_MISMATCH,
                 "size: 0 bytes given, must be at least 34");
  EXPECT(text[0] == 'z');
  EXPECT_FAILURE(kronsparse_problem_print(&problem, NULL, 256), KRONSPARSE_BAD_POINTER,
                 "text: null given, must not be null");
  EXPECT_FAILURE(kronsparse_problem_print(NULL, text, 256), KRONSPARSE_BAD_POINTER,
                 "problem: null given, must not be null");
}

static void test_enum_ranges(void) {
  char text[256];
  kronsparse_problem problem = parsed(TEXT);
  set_number(&problem.dtype, 6);
  EXPECT_FAILURE(kronsparse_problem_print(&problem, text, 256), KRONSPARSE_INVALID_ARGUMENT,
                 "dtype: the number 6 is none of 0 to 5 (f32, f64, f16, bf16, complex64, complex128)");
  problem = parsed(TEXT);
  set_number(&problem.layout, -1);
  EXPECT_FAILURE(kronsparse_problem_print(&problem, text, 256), KRONSPARSE_INVALID_ARGUMENT,
                 "layout: the number -1 is none of 0 to 1 (batch_first, batch_last)");
  problem = parsed(TEXT);
  set_number(&problem.operation, 2147483647);
  EXPECT_FAILURE(
      kronsparse_problem_print(&problem, text, 256), KRONSPARSE_INVALID_ARGUMENT,
      "operation: the number 2147483647 is none of 0 to 3 (multiply, transposed, adjoint, gradient)");
  problem = parsed(TEXT);
  set_number(&problem.mode, 3);
  EXPECT_FAILURE(kronsparse_problem_print(&problem, text, 256), KRONSPARSE_INVALID_ARGUMENT,
                 "mode: the number 3 is none of 0 to 2 (fp32, ieee, tf32)");
  problem = parsed(TEXT);
  set_number(&problem.activation, 256);
  EXPECT_FAILURE(kronsparse_problem_print(&problem, text, 256), KRONSPARSE_INVALID_ARGUMENT,
                 "activation: the number 256 is none of 0 to 4 (none, relu, gelu, gelu_tanh, silu)");
  problem = parsed(TEXT);
  problem.bias = 2;
  EXPECT_FAILURE(kronsparse_problem_print(&problem, text, 256), KRONSPARSE_INVALID_ARGUMENT,
                 "bias: 2 given, must be 0 or 1");
}

static int is_product(const float* y, float scale) {
  return y[0] == scale * 6 + 10 && y[1] == scale * 15 + 20 && y[2] == scale * -2 + 10 &&
         y[3] == scale * -2 + 20;
}

static void test_plan(void) {
  const kronsparse_problem problem = parsed(TEXT);
  const float doubled[6] = {2, 4, 6, 8, 10, 12};
  float y[4] = {0, 0, 0, 0};
  kronsparse_operands operands = {x, NULL, bias, NULL, NULL};
  kronsparse_plan* plan = NULL;
  operands.y = y;
  EXPECT(kronsparse_plan_create(&problem, values, NULL, NULL, &plan) == KRONSPARSE_OK);
  EXPECT(kronsparse_plan_run(plan, &operands) == KRONSPARSE_OK);
  EXPECT(is_product(y, 1));
  EXPECT(kronsparse_plan_set_values(plan, doubled) == KRONSPARSE_OK);
  EXPECT(kronsparse_plan_run(plan, &operands) == KRONSPARSE_OK);
  EXPECT(is_product(y, 2));
  EXPECT(strlen(kronsparse_plan_implementation(plan)) > 0);
  kronsparse_plan_destroy(plan);

  EXPECT(kronsparse_plan_create(&problem, values, "cpu", "reference", &plan) == KRONSPARSE_OK);
  EXPECT(strcmp(kronsparse_plan_implementation(plan), "reference") == 0);
  y[0] = y[1] = y[2] = y[3] = 42;
  operands.x = NULL;
  EXPECT_FAILURE(kronsparse_plan_run(plan, &operands), KRONSPARSE_BAD_POINTER,
                 "x: null given, must point to f32 elements");
  operands.x = x;
  operands.bias = NULL;
  EXPECT_FAILURE(kronsparse_plan_run(plan, &operands), KRONSPARSE_BAD_POINTER,
                 "bias: null given, f32 batch_first B=2 1x2x3x1 +bias needs it");
  operands.bias = bias;
  operands.g = x;
  EXPECT_FAILURE(kronsparse_plan_run(plan, &operands), KRONSPARSE_INVALID_ARGUMENT,
                 "g: given, must be null because f32 batch_first B=2 1x2x3x1 +bias does not use it");
  operands.g = NULL;
  operands.x = y;
  EXPECT(kronsparse_plan_run(plan, &operands) == KRONSPARSE_OVERLAP);
  EXPECT(y[0] == 42 && y[1] == 42 && y[2] == 42 && y[3] == 42);
  EXPECT_FAILURE(kronsparse_plan_run(plan, NULL), KRONSPARSE_BAD_POINTER,
                 "operands: null given, must not be null");
  EXPECT_FAILURE(kronsparse_plan_set_values(plan, NULL), KRONSPARSE_BAD_POINTER,
                 "values: null given, must point to f32 elements");
  kronsparse_plan_destroy(plan);

  EXPECT_FAILURE(kronsparse_plan_run(NULL, &operands), KRONSPARSE_BAD_POINTER,
                 "plan: null given, must not be null");
  EXPECT_FAILURE(kronsparse_plan_set_values(NULL, values), KRONSPARSE_BAD_POINTER,
                 "plan: null given, must not be null");
  EXPECT(kronsparse_plan_implementation(NULL) == NULL);
  kronsparse_plan_destroy(NULL);
}

static void test_plan_that_cannot_be(void) {
  const kronsparse_problem good = parsed(TEXT);
  kronsparse_problem bad = good;
  kronsparse_plan* const untouched = (kronsparse_plan*)&bad;
  kronsparse_plan* plan = untouched;
  EXPECT_FAILURE(kronsparse_plan_create(NULL, values, NULL, NULL, &plan), KRONSPARSE_BAD_POINTER,
                 "problem: null given, must not be null");
  EXPECT_FAILURE(kronsparse_plan_create(&good, NULL, NULL, NULL, &plan), KRONSPARSE_BAD_POINTER,
                 "values: null given, must point to f32 elements");
  EXPECT_FAILURE(kronsparse_plan_create(&good, values, "tpu", NULL, &plan), KRONSPARSE_PARSE,
                 "device: 'tpu' is none of cpu, cuda, opencl, with a number as in cuda:1 or without");
  EXPECT(kronsparse_plan_create(&good, values, "cpu:9", NULL, &plan) == KRONSPARSE_DEVICE);
  EXPECT(kronsparse_plan_create(&good, values, NULL, "turbo", &plan) == KRONSPARSE_INVALID_ARGUMENT);
  bad.batch = -5;
  EXPECT_FAILURE(kronsparse_plan_create(&bad, values, NULL, NULL, &plan), KRONSPARSE_INVALID_ARGUMENT,
                 "batch: -5 given, must be at least 0");
  bad = good;
  bad.a = bad.b = (int64_t)1 << 40;
  EXPECT_FAILURE(
      kronsparse_plan_create(&bad, values, NULL, NULL, &plan), KRONSPARSE_OVERFLOW,
      "pattern: 1099511627776x1099511627776x3x1 has too many values, their bytes must fit in 63 bits");
  set_number(&bad.dtype, 99);
  EXPECT(kronsparse_plan_create(&bad, values, NULL, NULL, &plan) == KRONSPARSE_INVALID_ARGUMENT);
  EXPECT(plan == untouched);
  EXPECT_FAILURE(kronsparse_plan_create(&good, values, NULL, NULL, NULL), KRONSPARSE_BAD_POINTER,
                 "plan: null given, must not be null");
}

static void test_predict(void) {
  const kronsparse_problem small = parsed("f32 batch_first B=64 2x16x16x4");
  const kronsparse_problem large = parsed("f32 batch_first B=6400 2x16x16x4");
  kronsparse_problem bad = small;
  double seconds = -1, longer = -1, forced = -1;
  EXPECT(kronsparse_predict(&small, NULL, NULL, &seconds) == KRONSPARSE_OK);
  EXPECT(kronsparse_predict(&large, "cpu", NULL, &longer) == KRONSPARSE_OK);
  EXPECT(seconds > 0 && longer > seconds);
  EXPECT(kronsparse_predict(&small, NULL, "reference", &forced) == KRONSPARSE_OK);
  EXPECT(forced >= seconds);

  bad.b = 0;
  seconds = -1;
  EXPECT_FAILURE(kronsparse_predict(&bad, NULL, NULL, &seconds), KRONSPARSE_INVALID_ARGUMENT,
                 "pattern: b of 2x0x16x4 is 0, must be at least 1");
  EXPECT(kronsparse_predict(&small, NULL, "turbo", &seconds) == KRONSPARSE_INVALID_ARGUMENT);
  EXPECT(kronsparse_predict(&small, "cpu:9", NULL, &seconds) == KRONSPARSE_DEVICE);
  EXPECT_FAILURE(kronsparse_predict(NULL, NULL, NULL, &seconds), KRONSPARSE_BAD_POINTER,
                 "problem: null given, must not be null");
  EXPECT(seconds == -1);
  EXPECT_FAILURE(kronsparse_predict(&small, NULL, NULL, NULL), KRONSPARSE_BAD_POINTER,
                 "seconds: null given, must not be null");
}

static void test_multiply(void) {
  kronsparse_problem problem;
  float y[4] = {0, 0, 0, 0};
  float gradient[6];
  const float g[4] = {1, 2, 3, 4};
  kronsparse_operands operands;
  memset(&problem, 0, sizeof problem);
  memset(&operands, 0, sizeof operands);
  /* Zero is every other field's default. */
  problem.a = 1, problem.b = 2, problem.c = 3, problem.d = 1, problem.batch = 2, problem.bias = 1;
  operands.x = x, operands.y = y, operands.bias = bias;
  EXPECT(kronsparse_multiply(&problem, values, &operands) == KRONSPARSE_OK);
  EXPECT(is_product(y, 1));

  problem.bias = 0;
  problem.operation = KRONSPARSE_GRADIENT;
  operands.bias = NULL, operands.g = g, operands.y = gradient;
  EXPECT(kronsparse_multiply(&problem, NULL, &operands) == KRONSPARSE_OK);
  EXPECT(gradient[0] == 4 && gradient[1] == 1 && gradient[2] == -2);
  EXPECT(gradient[3] == 6 && gradient[4] == 2 && gradient[5] == -2);

  EXPECT_FAILURE(kronsparse_multiply(&problem, NULL, NULL), KRONSPARSE_BAD_POINTER,
                 "operands: null given, must not be null");
  EXPECT_FAILURE(kronsparse_multiply(NULL, values, &operands), KRONSPARSE_BAD_POINTER,
                 "problem: null given, must not be null");
  problem.operation = KRONSPARSE_MULTIPLY;
  EXPECT_FAILURE(kronsparse_multiply(&problem, NULL, &operands), KRONSPARSE_BAD_POINTER,
                 "values: null given, must point to f32 elements");
}

int main(void) {
  test_names();
  test_problem();
  test_enum_ranges();
  test_plan();
  test_plan_that_cannot_be();
  test_predict();
  test_multiply();
  if (failures == 0) puts("c_api: all checks passed");
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

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
static const float numbers[6] = {1, 2, 3, 4, 5, 6};
static const void* const values[1] = {numbers};
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
                                      "f16 batch_first B=25088 8x64x64x16 +bias +gelu_tanh",
                                      "f16 batch_first B=1024 1x64x64x64*64x64x64x1 +bias +gelu"};
  kronsparse_problem problem = parsed(TEXT);
  kronsparse_problem untouched;
  char text[256];
  char longest[4096];
  size_t index;
  EXPECT(problem.factor_count == 1 && problem.batch == 2);
  EXPECT(problem.factors[0].a == 1 && problem.factors[0].b == 2);
  EXPECT(problem.factors[0].c == 3 && problem.factors[0].d == 1);
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
  problem.factors[0].a = INT64_MAX / 16;
  problem.batch = problem.cols_stride = problem.rows_stride = INT64_MIN;
  problem.bias = 1;
  problem.activation = KRONSPARSE_GELU_TANH;
  problem.mode = KRONSPARSE_MODE_TF32;
  EXPECT(kronsparse_problem_print(&problem, text, 256) == KRONSPARSE_OK);
  problem.factor_count = KRONSPARSE_MAX_FACTORS;
  for (index = 0; index < KRONSPARSE_MAX_FACTORS; ++index) {
    const kronsparse_pattern wide = {INT64_MAX / 16 / KRONSPARSE_MAX_FACTORS, 1, 1, 1};
    problem.factors[index] = wide;
  }
  EXPECT(kronsparse_problem_print(&problem, longest, sizeof longest) == KRONSPARSE_OK);
  problem.factor_count = 0;
  EXPECT_FAILURE(kronsparse_problem_print(&problem, longest, sizeof longest), KRONSPARSE_INVALID_ARGUMENT,
                 "factor_count: 0 given, must be 1 to 32");
  problem.factor_count = 33;
  EXPECT_FAILURE(kronsparse_problem_print(&problem, longest, sizeof longest), KRONSPARSE_INVALID_ARGUMENT,
                 "factor_count: 33 given, must be 1 to 32");
  strcpy(longest, "f32 batch_first B=1 1x1x1x1");
  for (index = 1; index < KRONSPARSE_MAX_FACTORS; ++index) strcat(longest, "*1x1x1x1");
  EXPECT(kronsparse_problem_parse(longest, &problem) == KRONSPARSE_OK);
  EXPECT(problem.factor_count == KRONSPARSE_MAX_FACTORS);
  strcat(longest, "*1x1x1x1");
  EXPECT_FAILURE(kronsparse_problem_parse(longest, &problem), KRONSPARSE_OVERFLOW,
                 "text: 33 factors given, must be at most 32");

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
                 "dtype: 6 given, must be 0 to 5 (f32, f64, f16, bf16, complex64, complex128)");
  problem = parsed(TEXT);
  set_number(&problem.layout, -1);
  EXPECT_FAILURE(kronsparse_problem_print(&problem, text, 256), KRONSPARSE_INVALID_ARGUMENT,
                 "layout: -1 given, must be 0 to 1 (batch_first, batch_last)");
  problem = parsed(TEXT);
  set_number(&problem.operation, 2147483647);
  EXPECT_FAILURE(kronsparse_problem_print(&problem, text, 256), KRONSPARSE_INVALID_ARGUMENT,
                 "operation: 2147483647 given, must be 0 to 3 (multiply, transposed, adjoint, gradient)");
  problem = parsed(TEXT);
  set_number(&problem.mode, 3);
  EXPECT_FAILURE(kronsparse_problem_print(&problem, text, 256), KRONSPARSE_INVALID_ARGUMENT,
                 "mode: 3 given, must be 0 to 2 (fp32, ieee, tf32)");
  problem = parsed(TEXT);
  set_number(&problem.activation, 256);
  EXPECT_FAILURE(kronsparse_problem_print(&problem, text, 256), KRONSPARSE_INVALID_ARGUMENT,
                 "activation: 256 given, must be 0 to 4 (none, relu, gelu, gelu_tanh, silu)");
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
  const float doubled_numbers[6] = {2, 4, 6, 8, 10, 12};
  const void* doubled[1];
  const void* none[1] = {NULL};
  float y[4] = {0, 0, 0, 0};
  kronsparse_operands operands;
  kronsparse_plan* plan = NULL;
  memset(&operands, 0, sizeof operands);
  operands.x = x, operands.y = y, operands.bias = bias;
  EXPECT(kronsparse_plan_create(&problem, values, NULL, NULL, &plan) == KRONSPARSE_OK);
  EXPECT(kronsparse_plan_run(plan, NULL, &operands) == KRONSPARSE_OK);
  EXPECT(is_product(y, 1));
  doubled[0] = doubled_numbers;
  EXPECT(kronsparse_plan_set_values(plan, doubled) == KRONSPARSE_OK);
  EXPECT(kronsparse_plan_run(plan, NULL, &operands) == KRONSPARSE_OK);
  EXPECT(is_product(y, 2));
  EXPECT(strlen(kronsparse_plan_implementation(plan)) > 0);
  EXPECT(kronsparse_plan_set_values_on(plan, values, NULL) == KRONSPARSE_OK);
  EXPECT(kronsparse_plan_run(plan, NULL, &operands) == KRONSPARSE_OK);
  EXPECT(is_product(y, 1));
  EXPECT(kronsparse_plan_packed_bytes(plan) >= sizeof numbers);
  kronsparse_plan_destroy(plan);

  EXPECT(kronsparse_plan_create(&problem, values, "cpu", "reference", &plan) == KRONSPARSE_OK);
  EXPECT(strcmp(kronsparse_plan_implementation(plan), "reference") == 0);
  y[0] = y[1] = y[2] = y[3] = 42;
  operands.x = NULL;
  EXPECT_FAILURE(kronsparse_plan_run(plan, NULL, &operands), KRONSPARSE_BAD_POINTER,
                 "x: null given, must point to f32 elements");
  operands.x = x;
  operands.bias = NULL;
  EXPECT_FAILURE(kronsparse_plan_run(plan, NULL, &operands), KRONSPARSE_BAD_POINTER,
                 "bias: null given, f32 batch_first B=2 1x2x3x1 +bias needs it");
  operands.bias = bias;
  operands.g = x;
  EXPECT_FAILURE(kronsparse_plan_run(plan, NULL, &operands), KRONSPARSE_INVALID_ARGUMENT,
                 "g: given, must be null because f32 batch_first B=2 1x2x3x1 +bias does not use it");
  operands.g = NULL;
  operands.x = y;
  EXPECT(kronsparse_plan_run(plan, NULL, &operands) == KRONSPARSE_OVERLAP);
  EXPECT(y[0] == 42 && y[1] == 42 && y[2] == 42 && y[3] == 42);
  EXPECT_FAILURE(kronsparse_plan_run(plan, NULL, NULL), KRONSPARSE_BAD_POINTER,
                 "operands: null given, must not be null");
  EXPECT_FAILURE(kronsparse_plan_set_values(plan, NULL), KRONSPARSE_BAD_POINTER,
                 "values: null given, must not be null");
  EXPECT_FAILURE(kronsparse_plan_set_values(plan, none), KRONSPARSE_BAD_POINTER,
                 "values: null given, must point to f32 elements");
  kronsparse_plan_destroy(plan);

  EXPECT_FAILURE(kronsparse_plan_run(NULL, NULL, &operands), KRONSPARSE_BAD_POINTER,
                 "plan: null given, must not be null");
  EXPECT_FAILURE(kronsparse_plan_set_values(NULL, values), KRONSPARSE_BAD_POINTER,
                 "plan: null given, must not be null");
  EXPECT(kronsparse_plan_implementation(NULL) == NULL);
  kronsparse_plan_destroy(NULL);
}

static void test_plan_that_cannot_be(void) {
  const kronsparse_problem good = parsed(TEXT);
  kronsparse_problem bad = good;
  const void* none[1] = {NULL};
  kronsparse_plan* const untouched = (kronsparse_plan*)&bad;
  kronsparse_plan* plan = untouched;
  EXPECT_FAILURE(kronsparse_plan_create(NULL, values, NULL, NULL, &plan), KRONSPARSE_BAD_POINTER,
                 "problem: null given, must not be null");
  EXPECT_FAILURE(kronsparse_plan_create(&good, none, NULL, NULL, &plan), KRONSPARSE_BAD_POINTER,
                 "values: null given, must point to f32 elements");
  EXPECT_FAILURE(
      kronsparse_plan_create(&good, values, "tpu", NULL, &plan), KRONSPARSE_PARSE,
      "device: 'tpu' given, must be one of cpu, cuda, opencl, with a number as in cuda:1 or without");
  EXPECT(kronsparse_plan_create(&good, values, "cpu:9", NULL, &plan) == KRONSPARSE_DEVICE);
  EXPECT(kronsparse_plan_create(&good, values, NULL, "turbo", &plan) == KRONSPARSE_INVALID_ARGUMENT);
  bad.batch = -5;
  EXPECT_FAILURE(kronsparse_plan_create(&bad, values, NULL, NULL, &plan), KRONSPARSE_INVALID_ARGUMENT,
                 "batch: -5 given, must be at least 0");
  bad = good;
  bad.factors[0].a = bad.factors[0].b = (int64_t)1 << 40;
  EXPECT_FAILURE(
      kronsparse_plan_create(&bad, values, NULL, NULL, &plan), KRONSPARSE_OVERFLOW,
      "pattern: 1099511627776x1099511627776x3x1 has too many values, their bytes must fit in 63 bits");
  bad = good;
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

  bad.factors[0].b = 0;
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
  problem.factor_count = 1;
  problem.factors[0].a = 1, problem.factors[0].b = 2, problem.factors[0].c = 3, problem.factors[0].d = 1;
  problem.batch = 2, problem.bias = 1;
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
  operands.g = NULL, operands.y = y;
  EXPECT_FAILURE(kronsparse_multiply(&problem, NULL, &operands), KRONSPARSE_BAD_POINTER,
                 "values: null given, a plan of f32 batch_first B=2 1x2x3x1 that keeps none needs them");
}

/* Fills what it allocates with NaN, and counts. */
typedef struct memory_count {
  int held;
  int most;
} memory_count;

static void* allocate_counted(void* context, size_t bytes) {
  memory_count* count = context;
  void* data = NULL;
  if (count->most >= 0 && count->held == count->most) return NULL;
  if (kronsparse_allocate("cpu", bytes, &data) != KRONSPARSE_OK) return NULL;
  memset(data, 0xff, bytes);
  ++count->held;
  return data;
}

static void release_counted(void* context, void* data) {
  --((memory_count*)context)->held;
  EXPECT(kronsparse_free("cpu", data) == KRONSPARSE_OK);
}

/* [[1, 1]] beside each other of [[1, 2], [3, 4]] and [[5, 6], [7, 8]]. */
#define CHAIN "f32 batch_first B=1 1x1x2x2*2x2x2x1"
static const float left[4] = {1, 1, 1, 1};
static const float right[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static const void* const factors[2] = {left, right};
static const float chain_x[8] = {1, 10, 100, 1000, 1, 0, 0, 0};

static void test_chain(void) {
  const kronsparse_problem problem = parsed(CHAIN);
  const kronsparse_batch two = {2, 0, 0};
  const kronsparse_batch strided = {2, 3, 0};
  const float twos[4] = {2, 2, 2, 2};
  const void* changed[2];
  float y[4] = {0, 0, 0, 0};
  double seconds = -1, packing = -1;
  size_t bytes = 0;
  char text[256];
  kronsparse_operands operands;
  kronsparse_problem same;
  kronsparse_plan *plan = NULL, *keeping = NULL;
  void *workspace = NULL, *intermediates = NULL;
  memset(&operands, 0, sizeof operands);
  changed[0] = twos, changed[1] = right;

  /* Without values of its own, for any batch. */
  EXPECT(kronsparse_plan_create(&problem, NULL, NULL, NULL, &plan) == KRONSPARSE_OK);
  EXPECT(kronsparse_plan_packed_bytes(plan) == 0);
  operands.x = chain_x, operands.y = y, operands.values = factors;
  EXPECT(kronsparse_plan_workspace(plan, &two, &operands, &bytes) == KRONSPARSE_OK);
  EXPECT(bytes >= 2 * 4 * sizeof(float));
  EXPECT(kronsparse_allocate(NULL, bytes, &workspace) == KRONSPARSE_OK);
  EXPECT((uintptr_t)workspace % 256 == 0);
  EXPECT(kronsparse_plan_run(plan, &two, &operands) == KRONSPARSE_BAD_POINTER);
  EXPECT(strncmp(kronsparse_last_error(), "workspace: null given", 21) == 0);
  operands.workspace = workspace, operands.workspace_bytes = bytes - 1;
  EXPECT(kronsparse_plan_run(plan, &two, &operands) == KRONSPARSE_SIZE_MISMATCH);
  operands.workspace = (char*)workspace + 4, operands.workspace_bytes = bytes;
  EXPECT(kronsparse_plan_run(plan, &two, &operands) == KRONSPARSE_BAD_POINTER);
  operands.workspace = workspace;
  EXPECT(y[0] == 0 && y[3] == 0);
  EXPECT(kronsparse_plan_run(plan, &two, &operands) == KRONSPARSE_OK);
  EXPECT(y[0] == 6521 && y[1] == 8743 && y[2] == 1 && y[3] == 3);
  operands.values = NULL;
  EXPECT(kronsparse_plan_run(plan, &two, &operands) == KRONSPARSE_BAD_POINTER);
  operands.values = factors;
  EXPECT_FAILURE(kronsparse_plan_run(plan, &strided, &operands), KRONSPARSE_INVALID_ARGUMENT,
                 "cols_stride: 3 given, must be 0 (dense) or at least the row length 4");
  EXPECT_FAILURE(kronsparse_plan_set_values(plan, factors), KRONSPARSE_INVALID_ARGUMENT,
                 "values: given to a plan of " CHAIN " that was made without any");

  /* The intermediates. */
  EXPECT(kronsparse_plan_intermediates(plan, &two, &bytes) == KRONSPARSE_OK);
  EXPECT(bytes >= 2 * 4 * sizeof(float));
  EXPECT(kronsparse_allocate(NULL, bytes, &intermediates) == KRONSPARSE_OK);
  operands.intermediates = intermediates;
  EXPECT(kronsparse_plan_run(plan, &two, &operands) == KRONSPARSE_OK);
  EXPECT(((float*)intermediates)[0] == 21 && ((float*)intermediates)[3] == 8700);
  EXPECT(kronsparse_plan_intermediates(plan, &two, NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_plan_intermediates(NULL, &two, &bytes) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_plan_workspace(plan, &two, NULL, &bytes) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_plan_workspace(plan, &two, &operands, NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_plan_workspace(NULL, &two, &operands, &bytes) == KRONSPARSE_BAD_POINTER);

  /* Its properties. */
  EXPECT(kronsparse_plan_predict(plan, &two, &seconds, &packing) == KRONSPARSE_OK);
  EXPECT(seconds > 0 && packing >= 0);
  EXPECT(kronsparse_plan_predict(plan, NULL, NULL, &packing) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_plan_predict(NULL, NULL, &seconds, &packing) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_plan_problem(plan, &same) == KRONSPARSE_OK);
  EXPECT(kronsparse_problem_print(&same, text, sizeof text) == KRONSPARSE_OK && strcmp(text, CHAIN) == 0);
  EXPECT(kronsparse_plan_device(plan, text, sizeof text) == KRONSPARSE_OK && strcmp(text, "cpu") == 0);
  EXPECT(kronsparse_plan_device(plan, text, 3) == KRONSPARSE_SIZE_MISMATCH);
  EXPECT(kronsparse_plan_choice(plan, &two, text, sizeof text) == KRONSPARSE_OK);
  EXPECT(strstr(text, " + ") != NULL);
  EXPECT(kronsparse_plan_choice(plan, &two, NULL, 0) == KRONSPARSE_BAD_POINTER);

  /* With values of its own. */
  operands.intermediates = NULL, operands.values = NULL;
  EXPECT(kronsparse_plan_create(&problem, factors, "cpu", "reference", &keeping) == KRONSPARSE_OK);
  EXPECT(strcmp(kronsparse_plan_implementation(keeping), "reference + reference") == 0);
  EXPECT(kronsparse_plan_prepare(keeping, &two, factors) == KRONSPARSE_OK);
  EXPECT(kronsparse_plan_prepare(keeping, &two, NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_plan_prepare(NULL, &two, factors) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_plan_set_values_on(keeping, changed, NULL) == KRONSPARSE_OK);
  EXPECT(kronsparse_synchronise("cpu", NULL) == KRONSPARSE_OK);
  y[0] = 0;
  EXPECT(kronsparse_plan_run(keeping, &two, &operands) == KRONSPARSE_OK);
  EXPECT(y[0] == 2 * 6521 && y[3] == 2 * 3);
  EXPECT(kronsparse_plan_set_values_on(keeping, NULL, NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_plan_set_values_on(NULL, changed, NULL) == KRONSPARSE_BAD_POINTER);
  changed[1] = NULL;
  EXPECT_FAILURE(kronsparse_plan_set_values(keeping, changed), KRONSPARSE_BAD_POINTER,
                 "values[1]: null given, must point to f32 elements");

  kronsparse_plan_destroy(plan);
  kronsparse_plan_destroy(keeping);
  EXPECT(kronsparse_free(NULL, workspace) == KRONSPARSE_OK);
  EXPECT(kronsparse_free(NULL, intermediates) == KRONSPARSE_OK);

  y[0] = 0;
  memset(&operands, 0, sizeof operands);
  operands.x = chain_x, operands.y = y;
  EXPECT(kronsparse_multiply(&problem, factors, &operands) == KRONSPARSE_OK);
  EXPECT(y[0] == 6521 && y[1] == 8743);
}

static void test_chain_gradient(void) {
  const kronsparse_problem problem = parsed("gradient " CHAIN);
  const float g[2] = {1, 2};
  float of_right[8], of_x[4];
  void* gradients[2];
  kronsparse_operands operands;
  kronsparse_plan* plan = NULL;
  size_t bytes = 0;
  void* workspace = NULL;
  memset(&operands, 0, sizeof operands);
  gradients[0] = NULL, gradients[1] = of_right;
  operands.x = chain_x, operands.g = g, operands.values = factors;
  operands.gradients = gradients, operands.grad_x = of_x;
  EXPECT(kronsparse_plan_create(&problem, NULL, NULL, NULL, &plan) == KRONSPARSE_OK);
  EXPECT(kronsparse_plan_workspace(plan, NULL, &operands, &bytes) == KRONSPARSE_OK);
  EXPECT(kronsparse_allocate(NULL, bytes, &workspace) == KRONSPARSE_OK);
  operands.workspace = workspace, operands.workspace_bytes = bytes;
  EXPECT(kronsparse_plan_run(plan, NULL, &operands) == KRONSPARSE_OK);
  EXPECT(of_right[0] == 1 && of_right[1] == 10 && of_right[2] == 2 && of_right[7] == 2000);
  EXPECT(of_x[0] == 7 && of_x[1] == 10 && of_x[2] == 19 && of_x[3] == 22);
  operands.y = of_right;
  EXPECT_FAILURE(kronsparse_plan_run(plan, NULL, &operands), KRONSPARSE_INVALID_ARGUMENT,
                 "y: given beside gradients, must be null there");
  kronsparse_plan_destroy(plan);
  EXPECT(kronsparse_free(NULL, workspace) == KRONSPARSE_OK);
}

static void test_packed(void) {
  const kronsparse_problem problem = parsed(CHAIN);
  const kronsparse_problem other_problem = parsed(TEXT);
  const kronsparse_batch two = {2, 0, 0};
  memory_count count = {0, -1};
  float y[4] = {0, 0, 0, 0};
  int is_ready = -1, has_room = -1;
  size_t bytes = 0;
  void* workspace = NULL;
  kronsparse_operands operands;
  kronsparse_plan *plan = NULL, *other = NULL;
  kronsparse_packed *packed = NULL, *untouched = (kronsparse_packed*)&count;
  memset(&operands, 0, sizeof operands);
  EXPECT(kronsparse_plan_create(&problem, NULL, NULL, NULL, &plan) == KRONSPARSE_OK);
  EXPECT(kronsparse_plan_create(&other_problem, NULL, NULL, NULL, &other) == KRONSPARSE_OK);
  EXPECT(kronsparse_packed_create(plan, &packed) == KRONSPARSE_OK);
  EXPECT(kronsparse_packed_bytes(packed) == 0 && kronsparse_packed_bytes(NULL) == 0);
  kronsparse_packed_destroy(packed);
  kronsparse_packed_destroy(NULL);

  EXPECT(kronsparse_packed_create_with(plan, allocate_counted, release_counted, &count, &packed) ==
         KRONSPARSE_OK);
  EXPECT(kronsparse_packed_is_ready(packed, plan, &two, &is_ready) == KRONSPARSE_OK && is_ready == 0);
  count.most = 0;
  EXPECT(kronsparse_packed_prepare(packed, plan, &two, factors, NULL, &has_room) == KRONSPARSE_OUT_OF_MEMORY);
  EXPECT(has_room == -1);
  count.most = -1;
  EXPECT(kronsparse_packed_prepare(packed, plan, &two, factors, NULL, &has_room) == KRONSPARSE_OK);
  EXPECT(has_room == 1 && count.held == 2);
  EXPECT(kronsparse_packed_prepare(packed, plan, &two, factors, NULL, NULL) == KRONSPARSE_OK);
  EXPECT(kronsparse_packed_is_ready(packed, plan, &two, &is_ready) == KRONSPARSE_OK && is_ready == 1);
  EXPECT(kronsparse_packed_bytes(packed) >= sizeof left + sizeof right);
  operands.x = chain_x, operands.y = y, operands.packed = packed;
  EXPECT(kronsparse_plan_workspace(plan, &two, &operands, &bytes) == KRONSPARSE_OK);
  EXPECT(kronsparse_allocate("cpu", bytes, &workspace) == KRONSPARSE_OK);
  operands.workspace = workspace, operands.workspace_bytes = bytes;
  EXPECT(kronsparse_plan_run(plan, &two, &operands) == KRONSPARSE_OK);
  EXPECT(y[0] == 6521 && y[1] == 8743 && y[2] == 1 && y[3] == 3);

  EXPECT(kronsparse_packed_prepare(packed, other, NULL, values, NULL, NULL) == KRONSPARSE_SIZE_MISMATCH);
  EXPECT(kronsparse_packed_prepare(NULL, plan, NULL, factors, NULL, NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_packed_prepare(packed, NULL, NULL, factors, NULL, NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_packed_prepare(packed, plan, NULL, NULL, NULL, NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_packed_is_ready(packed, plan, &two, NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_packed_is_ready(NULL, plan, &two, &is_ready) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_packed_create(NULL, &untouched) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_packed_create_with(plan, NULL, release_counted, NULL, &untouched) ==
         KRONSPARSE_BAD_POINTER);
  EXPECT(untouched == (kronsparse_packed*)&count);
  EXPECT(kronsparse_packed_create(plan, NULL) == KRONSPARSE_BAD_POINTER);
  kronsparse_packed_destroy(packed);
  EXPECT(count.held == 0);
  kronsparse_plan_destroy(plan);
  kronsparse_plan_destroy(other);
  EXPECT(kronsparse_free("cpu", workspace) == KRONSPARSE_OK);
}

static void test_lists(void) {
  const kronsparse_problem chain = parsed(CHAIN);
  const kronsparse_problem one = parsed(TEXT);
  kronsparse_device devices[4];
  kronsparse_implementation implementations[64];
  kronsparse_candidate candidates[64];
  kronsparse_problem steps[4];
  char text[256];
  size_t count = 0, index, accepting = 0, of_cpu = 0;

  EXPECT(kronsparse_devices(NULL, 0, &count) == KRONSPARSE_OK && count >= 1);
  EXPECT(kronsparse_devices(devices, 4, &count) == KRONSPARSE_OK);
  EXPECT(strcmp(devices[0].name, "cpu") == 0 && strlen(devices[0].description) > 0);
  EXPECT_FAILURE(kronsparse_devices(NULL, 1, &count), KRONSPARSE_BAD_POINTER,
                 "devices: null given, must not be null");
  EXPECT(kronsparse_devices(devices, 4, NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_why_unusable("cpu", text, sizeof text) == KRONSPARSE_OK && strcmp(text, "") == 0);
  EXPECT(kronsparse_why_unusable("cuda:999", text, sizeof text) == KRONSPARSE_OK && strlen(text) > 0);
  EXPECT(kronsparse_why_unusable("cuda:999", text, 2) == KRONSPARSE_OK && strlen(text) == 1);
  EXPECT(kronsparse_why_unusable("cpu", text, 0) == KRONSPARSE_SIZE_MISMATCH);
  EXPECT(kronsparse_why_unusable("cpu", NULL, 5) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_why_unusable("tpu", text, sizeof text) == KRONSPARSE_PARSE);

  EXPECT(kronsparse_implementations(implementations, 64, &count) == KRONSPARSE_OK && count >= 1 &&
         count <= 64);
  for (index = 0; index < count; ++index) of_cpu += strcmp(implementations[index].backend, "cpu") == 0;
  EXPECT(strlen(implementations[0].summary) > 0);

  EXPECT(kronsparse_candidates(&one, "cpu", candidates, 64, &count) == KRONSPARSE_OK && count == of_cpu);
  for (index = 0; index < count; ++index) {
    if (strlen(candidates[index].refusal) > 0) continue;
    EXPECT(index == accepting && candidates[index].predicted_seconds > 0);
    ++accepting;
  }
  EXPECT(accepting >= 1);
  EXPECT(kronsparse_candidates(&one, "cpu", candidates, 1, &count) == KRONSPARSE_OK && count == of_cpu);
  EXPECT(candidates[0].is_measured == 0);
  EXPECT(kronsparse_tune(&one, "cpu", -1) == KRONSPARSE_INVALID_ARGUMENT);
  EXPECT(kronsparse_tune(NULL, "cpu", 1) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_tune(&one, "cpu", 1) == KRONSPARSE_OK);
  EXPECT(kronsparse_candidates(&one, "cpu", candidates, 1, &count) == KRONSPARSE_OK);
  EXPECT(candidates[0].is_measured == 1 && candidates[0].predicted_seconds > 0);
  EXPECT(kronsparse_candidates(NULL, "cpu", candidates, 64, &count) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_candidates(&chain, "cpu", candidates, 64, &count) == KRONSPARSE_OK && count == of_cpu);
  for (index = 0; index < count; ++index) /* the others take one factor at a time */
    EXPECT(strlen(candidates[index].refusal) > 0 || strcmp(candidates[index].implementation, "fused") == 0);

  EXPECT(kronsparse_steps(&chain, steps, 4, &count) == KRONSPARSE_OK && count == 2);
  EXPECT(steps[0].factor_count == 1 && steps[0].factors[0].a == 2 && steps[1].factors[0].d == 2);
  EXPECT(kronsparse_candidates(&steps[0], NULL, candidates, 64, &count) == KRONSPARSE_OK);
  EXPECT(kronsparse_steps(NULL, steps, 4, &count) == KRONSPARSE_BAD_POINTER);
}

static void test_memory(void) {
  const float from[4] = {1, 2, 3, 4};
  float to[4] = {0, 0, 0, 0};
  void *data = NULL, *copy = NULL;
  double seconds[2];
  size_t count = 0;
  int is_capturing = -1;
  kronsparse_timer* timer = NULL;
  EXPECT(kronsparse_allocate("cpu", sizeof from, &data) == KRONSPARSE_OK && data != NULL);
  EXPECT(kronsparse_allocate("cpu", sizeof from, &copy) == KRONSPARSE_OK);
  EXPECT(kronsparse_copy_from_host("cpu", data, from, sizeof from, NULL) == KRONSPARSE_OK);
  EXPECT(kronsparse_copy("cpu", copy, data, sizeof from, NULL) == KRONSPARSE_OK);
  EXPECT(kronsparse_clear("cpu", data, 2 * sizeof(float), NULL) == KRONSPARSE_OK);
  EXPECT(kronsparse_copy_to_host("cpu", to, copy, sizeof to, NULL) == KRONSPARSE_OK && to[0] == 1 &&
         to[3] == 4);
  EXPECT(kronsparse_copy_to_host("cpu", to, data, sizeof to, NULL) == KRONSPARSE_OK && to[1] == 0 &&
         to[2] == 3);
  EXPECT_FAILURE(kronsparse_copy_from_host("cpu", NULL, from, 4, NULL), KRONSPARSE_BAD_POINTER,
                 "to: null given for 4 bytes");
  EXPECT(kronsparse_copy_to_host("cpu", to, NULL, 4, NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_copy("cpu", NULL, data, 4, NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_clear("cpu", NULL, 4, NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_clear("cpu", NULL, 0, NULL) == KRONSPARSE_OK);
  EXPECT(kronsparse_allocate("cpu:7", 4, &data) == KRONSPARSE_DEVICE);
  EXPECT(kronsparse_allocate("cpu", 4, NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_free("cpu", data) == KRONSPARSE_OK);
  EXPECT(kronsparse_free("cpu", copy) == KRONSPARSE_OK);
  EXPECT(kronsparse_free("cpu", NULL) == KRONSPARSE_OK);
  EXPECT(kronsparse_synchronise("cpu:7", NULL) == KRONSPARSE_DEVICE);
  EXPECT(kronsparse_is_capturing("cpu", NULL, &is_capturing) == KRONSPARSE_OK && is_capturing == 0);
  EXPECT(kronsparse_is_capturing("cpu", NULL, NULL) == KRONSPARSE_BAD_POINTER);

  EXPECT(kronsparse_timer_create("cpu", NULL, &timer) == KRONSPARSE_OK);
  EXPECT(kronsparse_timer_mark(timer) == KRONSPARSE_OK);
  EXPECT(kronsparse_timer_mark(timer) == KRONSPARSE_OK);
  EXPECT(kronsparse_timer_seconds(timer, seconds, 2, &count) == KRONSPARSE_OK && count == 1 &&
         seconds[0] >= 0);
  EXPECT(kronsparse_timer_mark(NULL) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_timer_seconds(NULL, seconds, 2, &count) == KRONSPARSE_BAD_POINTER);
  EXPECT(kronsparse_timer_create("cpu:7", NULL, &timer) == KRONSPARSE_DEVICE);
  EXPECT(kronsparse_timer_create("cpu", NULL, NULL) == KRONSPARSE_BAD_POINTER);
  kronsparse_timer_destroy(timer);
  kronsparse_timer_destroy(NULL);
}

int main(void) {
  test_names();
  test_problem();
  test_enum_ranges();
  test_plan();
  test_plan_that_cannot_be();
  test_predict();
  test_multiply();
  test_chain();
  test_chain_gradient();
  test_packed();
  test_lists();
  test_memory();
  if (failures == 0) puts("c_api: all checks passed");
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

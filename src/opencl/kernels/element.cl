// Elements: how a dtype lies in memory, what it is added up in, and the end of a sum (bias, activation).
// DTYPE is one of f32, f64, f16, bf16, complex64, complex128.
#define DTYPE_f32 1
#define DTYPE_f64 2
#define DTYPE_f16 3
#define DTYPE_bf16 4
#define DTYPE_complex64 5
#define DTYPE_complex128 6
#define JOIN_(left, right) left##right
#define JOIN(left, right) JOIN_(left, right)
#define KIND JOIN(DTYPE_, DTYPE)

// Left to themselves, compilers call functions that have to know their constant arguments.
#define INLINE inline __attribute__((always_inline))

// A kernel says how large its work-groups are, unless registers are to be limited: NVIDIA's compiler ignores the limit
// where it knows the size.
#if defined(LIMITS_REGISTERS)
#define WORK_GROUP
#else
#define WORK_GROUP __attribute__((reqd_work_group_size(GROUP, 1, 1)))
#endif

#define AT_MOST(value, limit) ((value) < (limit) ? (value) : (limit))

#if KIND == DTYPE_f64 || KIND == DTYPE_complex128
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define REAL double
#else
#define REAL float
#endif
typedef REAL Real;

// Element is the type of pointers, Sum that of arithmetic.
#define IS_HALF (KIND == DTYPE_f16 || KIND == DTYPE_bf16)
#if IS_HALF
typedef ushort Element;
typedef float Sum;
#elif KIND == DTYPE_f64
typedef double Element;
typedef double Sum;
#elif KIND == DTYPE_complex64
typedef float Element;  // two of them: a pointer to float2 would promise more alignment than there is
typedef float2 Sum;
#elif KIND == DTYPE_complex128
typedef double Element;
typedef double2 Sum;
#else
typedef float Element;
typedef float Sum;
#endif

#define IS_COMPLEX (KIND == DTYPE_complex64 || KIND == DTYPE_complex128)
#define ELEMENT_PARTS (IS_COMPLEX ? 2 : 1)  // what one element is to a pointer

// Drivers of CPUs call vload_half and vstore_half, in the innermost loop. Clang, which they are made of, knows instructions
// that convert f16 where the CPU has them.
#if IS_CPU && defined(__clang__) && (defined(__F16C__) || defined(__aarch64__))
#define CONVERTS_F16 1
#else
#define CONVERTS_F16 0
#endif

// Else by hand. The number whose f16 has these bits: scaled by a product, which makes subnormal numbers normal, and what has all
// exponent bits keeps all. Vectors are compared to all bits, scalars to one.
#define FROM_HALF(suffix, bits, is_special)                                                                   \
  JOIN(as_float, suffix)                                                                                      \
  (JOIN(as_uint, suffix)(JOIN(as_float, suffix)(((bits)&0x7fffu) << 13) * 0x1p112f) | ((bits)&0x8000u) << 16 | \
   ((is_special)&0x7f800000u))

#if IS_HALF
// The number that an element is, without memory in between.
INLINE Sum number_of(ushort element) {
#if KIND == DTYPE_bf16
  return as_float((uint)element << 16);
#elif CONVERTS_F16
  return __builtin_load_halff((const half*)&element);
#elif IS_CPU
  const uint bits = element;
  return FROM_HALF(, bits, (bits & 0x7c00u) == 0x7c00u ? 0xffffffffu : 0u);
#else
  return vload_half(0, (const half*)&element);
#endif
}

// The bf16 bits of numbers, to nearest, ties to even. A nan must not be rounded up to an infinity.
#define BF16_OF(bits, is_nan) (((is_nan) ? (bits) | 0x400000u : (bits) + 0x7fffu + ((bits) >> 16 & 1u)) >> 16)
#endif

INLINE Sum load(const global Element* from, long index) {
#if IS_HALF
  return number_of(from[index]);
#elif IS_COMPLEX
  return vload2(index, from);
#else
  return from[index];
#endif
}

INLINE void store(global Element* to, long index, Sum value) {
#if KIND == DTYPE_f16 && CONVERTS_F16
  __builtin_store_halff(value, (global half*)to + index);
#elif KIND == DTYPE_f16
  vstore_half_rte(value, index, (global half*)to);
#elif KIND == DTYPE_bf16
  to[index] = (ushort)BF16_OF(as_uint(value), isnan(value));
#elif IS_COMPLEX
  vstore2(value, index, to);
#else
  to[index] = value;
#endif
}

INLINE Sum conjugate(Sum value) {
#if IS_COMPLEX
  return (Sum)(value.x, -value.y);
#else
  return value;
#endif
}

// sum + left·right, fused where the device does that.
#if IS_COMPLEX
#define MULTIPLY_ADD(sum, left, right) \
  ((sum) + (left).x * (right) + (left).y * (Sum)(-(right).y, (right).x))
#else
#define MULTIPLY_ADD(sum, left, right) ((sum) + (left) * (right))
#endif

// Everything that a kernel is told, as src/opencl/contraction.hpp has it.
typedef struct {
  long m, n, depth, js;                  // sizes of one i
  long a_at, a_i, a_j, a_row, a_depth;   // where operands begin (in parts of elements), and their strides
  long b_at, b_i, b_j, b_tile, b_row, b_depth;  // b_tile: between neighbouring n, from tile to tile
  long c_at, c_i, c_j, c_m, c_n;
  long bias_at, bias_i, bias_n;
  long n_tiles, j_inner, m_tiles, j_outer;  // tiles, those that run side by side first
  long first_tile, tiles;
  long has_bias, activation, conjugates_b;
  // Aligned vectors of four: loads of A and B along their order (of two, where j come first and a tile has two),
  // stores along the batch or the outputs, stores along j.
  long loads_a_vectors, loads_b_vectors, stores_vectors, stores_runs;
} Args;

// A tile's place.
typedef struct {
  long i, j, m, n;  // of its beginning, in elements but for i
} Place;

INLINE Place place_of(const Args* args, long tile, long tile_j, long tile_m, long tile_n) {
  Place place;
  place.n = tile % args->n_tiles * tile_n;
  tile /= args->n_tiles;
  const long inner = tile % args->j_inner;
  tile /= args->j_inner;
  place.m = tile % args->m_tiles * tile_m;
  tile /= args->m_tiles;
  place.j = (tile % args->j_outer * args->j_inner + inner) * tile_j;
  place.i = tile / args->j_outer;
  return place;
}

// Much code, for which there are no two places.
__attribute__((noinline)) Real activate(Real value, int activation) {
  const Real half_ = (Real)0.5;
  switch (activation) {
    case 1:
      return isnan(value) || value > 0 ? value : 0;
    case 2:
      return half_ * value * erfc(value * (Real)-0.70710678118654752440);
    case 3:
      return half_ * value *
             (1 + tanh((Real)0.79788456080286535588 * (value + (Real)0.044715 * value * value * value)));
    case 4:
      return value / (1 + exp(-value));
    default:
      return value;
  }
}

// Writes the sum of one output, `at` elements from c; its bias is `bias_at` from bias.
INLINE void finish(global Element* c, const global Element* bias, const Args* args, long at, long bias_at, Sum sum) {
  if (args->has_bias) sum += load(bias, bias_at);
#if !IS_COMPLEX
  if (args->activation) sum = activate(sum, (int)args->activation);
#endif
  store(c, at, sum);
}

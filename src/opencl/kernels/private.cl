// Sums in private memory (registers), operands straight from global memory: for CPUs, whose caches need no
// help, and wherever local memory is too small. A work-item computes TILE_M x TILE_N sums, each of them a
// vector of WIDTH neighbours along AXIS:
//   AXIS_M      samples of batch_last, with packed values: A is read in vectors, B one by one
//   AXIS_N      outputs: B is read in vectors, A one by one
//   AXIS_J      neighbouring j: both are read in vectors
//   AXIS_DEPTH  the direction of the sum, for gradients of batch_last: both are read in vectors, whose
//               elements are added at the end
#define AXIS_M 1
#define AXIS_N 2
#define AXIS_J 3
#define AXIS_DEPTH 4

#if WIDTH == 1
typedef Sum Vector;
#else
typedef JOIN(REAL, WIDTH) Vector;
#endif

#if WIDTH > 1 && AXIS != AXIS_N
#define A_IS_VECTOR 1
typedef Vector AValue;
#else
#define A_IS_VECTOR 0
typedef Sum AValue;
#endif
#if WIDTH > 1 && AXIS != AXIS_M
#define B_IS_VECTOR 1
typedef Vector BValue;
#else
#define B_IS_VECTOR 0
typedef Sum BValue;
#endif

// The elements that one sum covers along each direction.
#define STEP_M (AXIS == AXIS_M ? WIDTH : 1)
#define STEP_N (AXIS == AXIS_N ? WIDTH : 1)
#define STEP_J (AXIS == AXIS_J ? WIDTH : 1)
#define STEP_DEPTH (AXIS == AXIS_DEPTH ? WIDTH : 1)

typedef union {
  Vector vector;
  Sum lane[WIDTH];
} Lanes;

// Neighbours `stride` apart, of which the first `count` exist; the others are zero.
INLINE Vector load_some(const global Element* from, long stride, int count) {
  Lanes lanes;
  for (int lane = 0; lane < WIDTH; ++lane) lanes.lane[lane] = lane < count ? load(from, lane * stride) : (Sum)0;
  return lanes.vector;
}

// Vectors in memory, aligned like their elements. Some drivers (PoCL on ARM) call vload instead of inlining it,
// in the innermost loop; clang, which nearly all of them are made of, knows a type for it.
#if WIDTH > 1 && defined(__clang__)
#define IN_MEMORY(type) type __attribute__((ext_vector_type(WIDTH), aligned(sizeof(type))))
typedef IN_MEMORY(Element) VectorInMemory;
#define LOAD_ELEMENTS(from) (*(const global VectorInMemory*)(from))
#define TO_UINT(vector) __builtin_convertvector(vector, JOIN(uint, WIDTH))
#define TO_USHORT(vector) __builtin_convertvector(vector, JOIN(ushort, WIDTH))
#define STORE_ELEMENTS(to, vector) (*(global VectorInMemory*)(to) = (vector))
#if CONVERTS_F16
typedef IN_MEMORY(__fp16) HalvesInMemory;
#endif
#else
#define LOAD_ELEMENTS(from) JOIN(vload, WIDTH)(0, from)
#define TO_UINT(vector) JOIN(convert_uint, WIDTH)(vector)
#define TO_USHORT(vector) JOIN(convert_ushort, WIDTH)(vector)
#define STORE_ELEMENTS(to, vector) JOIN(vstore, WIDTH)(vector, 0, to)
#endif

INLINE Vector load_all(const global Element* from) {
#if WIDTH == 1
  return load(from, 0);
#elif KIND == DTYPE_f16 && CONVERTS_F16
  return __builtin_convertvector(*(const global HalvesInMemory*)from, Vector);
#elif KIND == DTYPE_f16 && IS_CPU
  const JOIN(uint, WIDTH) bits = TO_UINT(LOAD_ELEMENTS(from));
  return FROM_HALF(WIDTH, bits, JOIN(as_uint, WIDTH)((bits & 0x7c00u) == 0x7c00u));
#elif KIND == DTYPE_f16
  return JOIN(vload_half, WIDTH)(0, (const global half*)from);
#elif KIND == DTYPE_bf16
  return JOIN(as_float, WIDTH)(TO_UINT(LOAD_ELEMENTS(from)) << 16);
#else
  return LOAD_ELEMENTS(from);
#endif
}

INLINE void store_all(global Element* to, Vector vector) {
#if WIDTH == 1
  store(to, 0, vector);
#elif KIND == DTYPE_f16 && CONVERTS_F16
  *(global HalvesInMemory*)to = __builtin_convertvector(vector, HalvesInMemory);
#elif KIND == DTYPE_f16
  JOIN(JOIN(vstore_half, WIDTH), _rte)(vector, 0, (global half*)to);
#elif KIND == DTYPE_bf16
  STORE_ELEMENTS(to, TO_USHORT(BF16_OF(JOIN(as_uint, WIDTH)(vector), isnan(vector))));
#else
  STORE_ELEMENTS(to, vector);
#endif
}

// The part of a tile that exists.
typedef struct {
  int m, n, lanes;
} Extent;

// Samples of batch_last lie far apart, often at the same place of a cache's every set. A work-item brings those of
// its tile together first, PANEL steps of the sum at a time, and takes all its outputs from there.
#if AXIS == AXIS_M
#define PANEL 1024
INLINE void fill_panel(Vector panel[PANEL][TILE_M], const global Element* a, const Args* args, const Extent extent,
                       const int steps) {
  for (int step = 0; step < steps; ++step) {
    const global Element* const from = a + step * args->a_depth * ELEMENT_PARTS;
    if (extent.m == TILE_M * STEP_M) {
#pragma unroll
      for (int r = 0; r < TILE_M; ++r) panel[step][r] = load_all(from + r * STEP_M * ELEMENT_PARTS);
    } else {
      for (int r = 0; r < TILE_M; ++r)
        panel[step][r] = load_some(from + r * STEP_M * ELEMENT_PARTS, 1, extent.m - r * STEP_M);
    }
  }
}
#endif

// Adds up one step of the depth, or STEP_DEPTH of them. `from_panel` has the left side where there is a panel. Of a
// tile that is full all rows can be read, and neighbours along AXIS are neighbours in memory: the compiler then knows
// more of the addresses.
INLINE void add_step(Vector sums[TILE_M][TILE_N], const global Element* a, const Vector* from_panel,
                     const global Element* b, const Args* args, const Extent extent, const bool is_full,
                     const int depths) {
  AValue left[TILE_M];
  BValue right[TILE_N];
  const bool is_b_full = is_full || IS_PACKED;
  const long b_row = AXIS == AXIS_M || (AXIS == AXIS_N && is_b_full) ? 1 : args->b_row;
  const int lanes = AXIS == AXIS_DEPTH ? depths : extent.lanes;
  const bool is_whole = AXIS == AXIS_DEPTH ? depths == WIDTH : is_full;
  const bool is_b_whole = is_whole || IS_PACKED;
#pragma unroll
  for (int r = 0; r < TILE_M; ++r) {
#if AXIS == AXIS_M
    left[r] = from_panel[r];
#else
    const int row = is_full ? r : AT_MOST(r, extent.m - 1);
    const global Element* const from = a + row * args->a_row * ELEMENT_PARTS;
#if A_IS_VECTOR
    left[r] = is_whole ? load_all(from) : load_some(from, 1, lanes);
#else
    left[r] = load(from, 0);
#endif
#endif
  }
#pragma unroll
  for (int s = 0; s < TILE_N; ++s) {
    const int row = is_b_full ? s * STEP_N : AT_MOST(s * STEP_N, extent.n - 1);
    const global Element* const from = b + row * b_row * ELEMENT_PARTS;
#if B_IS_VECTOR
    right[s] = is_b_whole ? load_all(from)
                          : load_some(from, AXIS == AXIS_N ? b_row : 1, AXIS == AXIS_N ? extent.n - row : lanes);
#else
    right[s] = load(from, 0);
#endif
#if IS_COMPLEX
    if (args->conjugates_b) right[s] = conjugate(right[s]);
#endif
  }
#pragma unroll
  for (int r = 0; r < TILE_M; ++r)
#pragma unroll
    for (int s = 0; s < TILE_N; ++s) sums[r][s] = MULTIPLY_ADD(sums[r][s], left[r], right[s]);
}

INLINE void add_steps(Vector sums[TILE_M][TILE_N], const global Element* a, const Vector* panel,
                      const global Element* b, const Args* args, const Extent extent, const bool is_full,
                      const long depth) {
  const long a_step = (AXIS == AXIS_DEPTH ? WIDTH : args->a_depth) * ELEMENT_PARTS;
  const long b_step = (AXIS == AXIS_DEPTH ? WIDTH : args->b_depth) * ELEMENT_PARTS;
  const long steps = depth / STEP_DEPTH;
  for (long step = 0; step < steps; ++step) {
    add_step(sums, a, panel, b, args, extent, is_full, STEP_DEPTH);
    a += a_step;
    b += b_step;
    panel += TILE_M;
  }
  const int rest = (int)(depth - steps * STEP_DEPTH);
  if (rest > 0) add_step(sums, a, panel, b, args, extent, is_full, rest);
}

// Sums that are indexed at run time would not stay in registers, so this is unrolled; the way out with a bias or an
// activation is too much code for that, and takes them from memory. Outputs of AXIS_N lie apart where d > 1.
INLINE void finish_tile(Vector sums[TILE_M][TILE_N], global Element* c, const global Element* bias, const Args* args,
                        const Place place, const Extent extent, const bool is_full) {
#if AXIS != AXIS_DEPTH && !IS_COMPLEX
  const bool is_unit = AXIS == AXIS_J ? args->c_j == 1 : AXIS == AXIS_M ? args->c_m == 1 : args->c_n == 1;
  if (is_full && is_unit && !args->has_bias && !args->activation) {
    c += args->c_at + place.i * args->c_i + place.j * args->c_j + place.m * args->c_m + place.n * args->c_n;
#pragma unroll
    for (int r = 0; r < TILE_M; ++r)
#pragma unroll
      for (int s = 0; s < TILE_N; ++s)
        store_all(c + r * STEP_M * (AXIS == AXIS_M ? 1 : args->c_m) + s * STEP_N * (AXIS == AXIS_N ? 1 : args->c_n),
                  sums[r][s]);
    return;
  }
#endif
#if AXIS == AXIS_N
  if (!args->has_bias && !args->activation) {
    c += args->c_at + place.i * args->c_i + place.j * args->c_j + place.m * args->c_m + place.n * args->c_n;
#pragma unroll
    for (int r = 0; r < TILE_M; ++r)
#pragma unroll
      for (int s = 0; s < TILE_N; ++s) {
        Lanes lanes;
        lanes.vector = sums[r][s];
        const int count = r < extent.m ? AT_MOST(extent.n - s * STEP_N, WIDTH) : 0;
        for (int lane = 0; lane < count; ++lane)
          store(c, r * args->c_m + (s * STEP_N + lane) * args->c_n, lanes.lane[lane]);
      }
    return;
  }
#endif
  Lanes out[TILE_M][TILE_N];
#pragma unroll
  for (int r = 0; r < TILE_M; ++r)
#pragma unroll
    for (int s = 0; s < TILE_N; ++s) out[r][s].vector = sums[r][s];
  for (int m = 0; m < extent.m; ++m)
    for (int n = 0; n < extent.n; ++n)
      for (int j = 0; j < extent.lanes; ++j) {
        const Lanes* const lanes = &out[m / STEP_M][n / STEP_N];
        Sum sum = lanes->lane[m % STEP_M + n % STEP_N + j];
#if AXIS == AXIS_DEPTH
        for (int lane = 1; lane < WIDTH; ++lane) sum += lanes->lane[lane];
#endif
        finish(c + args->c_at, bias + args->bias_at, args,
               place.i * args->c_i + (place.j + j) * args->c_j + (place.m + m) * args->c_m + (place.n + n) * args->c_n,
               place.i * args->bias_i + (place.n + n) * args->bias_n + place.j + j, sum);
      }
}

// A work-item takes M_TILES tiles along m and, for each, N_TILES along n, one after the other. Values that are packed
// fill their last tile with zeros, and can be read as if it were full.
kernel WORK_GROUP void contract(const global Element* a, const global Element* b, global Element* c,
                                const global Element* bias, Args given) {
  const Args* const args = &given;
  const long tile = args->first_tile + get_global_id(0);
  if (tile >= args->tiles) return;
  const Place first_place =
      place_of(args, tile, STEP_J, M_TILES * TILE_M * STEP_M, N_TILES * TILE_N * STEP_N);
  const long m_end = AT_MOST(args->m, first_place.m + M_TILES * TILE_M * STEP_M);
  const long n_end = AT_MOST(args->n, first_place.n + N_TILES * TILE_N * STEP_N);
  const int lanes = (int)AT_MOST(args->js - first_place.j, STEP_J);
  a += args->a_at + (first_place.i * args->a_i + first_place.j * args->a_j) * ELEMENT_PARTS;
  b += args->b_at + (first_place.i * args->b_i + first_place.j * args->b_j) * ELEMENT_PARTS;
#if AXIS == AXIS_M
  Vector panel[PANEL][TILE_M];
#endif
  for (long m = first_place.m; m < m_end; m += TILE_M * STEP_M)
    for (long n = first_place.n; n < n_end; n += TILE_N * STEP_N) {
      const Place place = {first_place.i, first_place.j, m, n};
      const Extent extent = {(int)AT_MOST(args->m - m, TILE_M * STEP_M), (int)AT_MOST(args->n - n, TILE_N * STEP_N),
                             lanes};
      const bool is_full = extent.m == TILE_M * STEP_M && extent.n == TILE_N * STEP_N && lanes == STEP_J &&
                           (AXIS != AXIS_N || args->b_row == 1);
      const bool reads_full = is_full || (IS_PACKED && extent.m == TILE_M * STEP_M);
      const global Element* const a_tile = a + m * args->a_row * ELEMENT_PARTS;
      const global Element* const b_tile = b + n * args->b_tile * ELEMENT_PARTS;
      Vector sums[TILE_M][TILE_N];
#pragma unroll
      for (int r = 0; r < TILE_M; ++r)
#pragma unroll
        for (int s = 0; s < TILE_N; ++s) sums[r][s] = (Vector)0;
#if AXIS == AXIS_M
      for (long first = 0; first < args->depth; first += PANEL) {
        const int steps = (int)AT_MOST(args->depth - first, PANEL);
        if (n == first_place.n || args->depth > PANEL)
          fill_panel(panel, a_tile + first * args->a_depth * ELEMENT_PARTS, args, extent, steps);
        const global Element* const from = b_tile + first * args->b_depth * ELEMENT_PARTS;
        if (reads_full)
          add_steps(sums, a_tile, panel[0], from, args, extent, true, steps);
        else
          add_steps(sums, a_tile, panel[0], from, args, extent, false, steps);
      }
#else
      if (reads_full)
        add_steps(sums, a_tile, 0, b_tile, args, extent, true, args->depth);
      else
        add_steps(sums, a_tile, 0, b_tile, args, extent, false, args->depth);
#endif
      finish_tile(sums, c, bias, args, place, extent, is_full);
    }
}

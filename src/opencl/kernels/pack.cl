// Values (a, b, c, d) in the order (a, d, depth, n): for each i and j a matrix whose rows, one for each step of
// the sum, hold all outputs. Work-items take neighbouring outputs, so that writes are contiguous. Conjugation is
// left to the product.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void pack(const global Element* values,
                                                                    global Element* packed, long values_at,
                                                                    long packed_at, long d, long depth, long n,
                                                                    long i_stride, long depth_stride, long n_stride,
                                                                    long first, long count) {
  const long index = first + get_global_id(0);
  if (index >= count) return;
  const long output = index % n;
  const long step = index / n % depth;
  const long j = index / (n * depth) % d;
  const long i = index / (n * depth * d);
  values += values_at + (i * i_stride + step * depth_stride + output * n_stride + j) * ELEMENT_PARTS;
  packed += packed_at + index * ELEMENT_PARTS;
  for (int part = 0; part < ELEMENT_PARTS; ++part) packed[part] = values[part];
}

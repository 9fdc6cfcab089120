// Values (a, b, c, d) in the order (a, d, tile, depth, n in the tile): for each i and j, and each tile of `panel`
// outputs, a matrix whose rows, one for each step of the sum, hold those outputs. Outputs that fill the last tile up
// are zero. Work-items take neighbouring outputs, so that writes are contiguous. Conjugation is left to the product.
kernel WORK_GROUP void pack(const global Element* values, global Element* packed, long values_at, long packed_at,
                            long d, long depth, long n, long panel, long i_stride, long depth_stride, long n_stride,
                            long first, long count) {
  const long index = first + get_global_id(0);
  if (index >= count) return;
  long rest = index;
  long output = rest % panel;
  rest /= panel;
  const long step = rest % depth;
  rest /= depth;
  const long tiles = (n + panel - 1) / panel;
  output += rest % tiles * panel;
  rest /= tiles;
  const long j = rest % d;
  const long i = rest / d;
  packed += packed_at + index * ELEMENT_PARTS;
  values += values_at + (i * i_stride + step * depth_stride + output * n_stride + j) * ELEMENT_PARTS;
  for (int part = 0; part < ELEMENT_PARTS; ++part) packed[part] = output < n ? values[part] : (Element)0;
}

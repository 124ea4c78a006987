// Parts of the AVX-512 path that the AMX path shares.
#pragma once
#include "linear.h"

namespace gearshift {

void quantize_avx512(const float* in, size_t stride, Activations& out, int row_begin, int row_end);

// Best for few rows; right for any number up to MAX_FEW_ROWS.
constexpr int MAX_FEW_ROWS = 16;
void multiply_few_avx512(const Linear&, const Activations&, int group_begin, int group_end, float* out, size_t stride,
                         uint8_t* scratch);
size_t few_scratch_bytes(int max_n_in);

// For any number of rows; scratch: arranged_bytes().
void multiply_many_avx512(const Linear&, const Activations&, int group_begin, int group_end, float* out, size_t stride,
                          uint8_t* scratch);

// Rows that are arranged in scratch memory at a time: a multiple of 16, about half a megabyte (a quarter of a core's
// second-level cache), since the weights of a group are read again for every block of them.
int rows_at_a_time(int rows, int padded);
// Bytes that they take, at 128 bytes per row and tile of inputs.
size_t arranged_bytes(int max_rows, int max_n_in);

}  // namespace gearshift

// The integer products of attention, compiled twice for the check: over emulated AVX-512 (WIDE), and in plain C++.
#ifdef WIDE
#define GEARSHIFT_PATH wide
#ifdef GEARSHIFT_EMULATE
#define __AVX512VNNI__ 1
#define __AVX512BW__ 1
#include "avx512.h"
#endif
#else
#define GEARSHIFT_PATH plain
#endif
#include "../attention_product.h"

namespace gearshift::GEARSHIFT_PATH {

// blocks: `count` pointers.
template <class T>
void check_product(const int16_t* a, size_t a_stride, int rows, const T* const* blocks, int count, int a_step,
                   int quads, size_t quad_step, int columns, int32_t* out, size_t out_stride) {
    Operands<T> b{{}, count, a_step, quads, quad_step};
    for (int i = 0; i < count; i++) b.blocks[i] = blocks[i];
    product(a, a_stride, rows, b, columns, out, out_stride);
}
template decltype(check_product<int8_t>) check_product;
template decltype(check_product<int16_t>) check_product;

}  // namespace gearshift::GEARSHIFT_PATH

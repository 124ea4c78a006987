// Rotation of a head by Hadamard matrices: spreads outliers over all dims before rounding to 8 bits, and does not change
// products between rotated vectors. It is its own inverse. Only for the sources that are compiled once per path.
#pragma once
#include "forward_lanes.h"

namespace gearshift::GEARSHIFT_PATH {
namespace {

// One butterfly between lanes i and i ^ stride of every 16 lanes: (a + b, a - b).
template <int stride>
GEARSHIFT_INLINE Floats butterfly(Floats x) {
    if constexpr (stride >= NATIVE) {
        constexpr int apart = stride / NATIVE;
        Floats out;
        GEARSHIFT_PARTS out.part[i] = i & apart ? x.part[i ^ apart] - x.part[i] : x.part[i] + x.part[i ^ apart];
        return out;
    } else {
        NativeInt from, flip;
        for (int lane = 0; lane < NATIVE; ++lane) {
            from[lane] = lane ^ stride;
            flip[lane] = lane & stride ? INT32_MIN : 0;
        }
        GEARSHIFT_PARTS x.part[i] =
            __builtin_shuffle(x.part[i], from) + (NativeFloat)((NativeInt)x.part[i] ^ flip);
        return x;
    }
}

// n: a multiple of 16. Split into the largest powers of two, first to last (80 is 64 and 16).
inline void hadamard(float* x, int n) {
    while (n > 0) {
        int width = LANES;
        while (width * 2 <= n) width *= 2;
        const Floats factor = all(1.0f / __builtin_sqrtf(float(width)));
        for (int i = 0; i < width; i += LANES) {
            const Floats lanes = butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(load(x + i)))));
            store(x + i, lanes * factor);
        }
        for (int stride = LANES; stride < width; stride *= 2)
            for (int base = 0; base < width; base += 2 * stride)
                for (int i = base; i < base + stride; i += LANES) {
                    const Floats a = load(x + i), b = load(x + i + stride);
                    store(x + i, a + b);
                    store(x + i + stride, a - b);
                }
        x += width;
        n -= width;
    }
}

}  // namespace
}  // namespace gearshift::GEARSHIFT_PATH

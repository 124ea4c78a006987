// Hash, logarithm and noise of `choose`, in plain IEEE operations; shared by the compilations of choose_passes.inc.
#pragma once
#include <bit>
#include <cstdint>

#include "choose_passes.h"

namespace gearshift {
namespace {   // each compilation keeps its own copy: the linker must not hand AVX2 code to another processor

// A keyed 32-bit hash. T: one number or a vector of them.
template <class T>
inline __attribute__((always_inline)) T mix(T x, uint32_t first, uint32_t second) {
    x = x ^ first;
    x = (x ^ (x >> 16)) * 0x9e3779b1u;
    x = (x ^ (x >> 15)) * 0x85ebca6bu;
    x = x ^ second;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

[[maybe_unused]] inline double log_of(double x) {
    uint64_t bits = std::bit_cast<uint64_t>(x);
    int exponent = int(bits >> 52) - 1023;
    double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent += 1;
    }
    double s = (m - 1) / (m + 1), q = s * s;   // log m = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172
    double p = 1.0 / 15;
    p = p * q + 1.0 / 13;
    p = p * q + 1.0 / 11;
    p = p * q + 1.0 / 9;
    p = p * q + 1.0 / 7;
    p = p * q + 1.0 / 5;
    p = p * q + 1.0 / 3;
    p = p * q * s + s;
    return exponent * 0.6931471805599453 + 2 * p;
}

// Standard Gumbel noise -ln(-ln(1 - v)) from a 64-bit uniform v, fine where it is large: up to 45.
inline double gumbel(uint32_t id, const NoiseKey& key) {
    uint32_t high = mix(id, key.high[0], key.high[1]), low = mix(id, key.low[0], key.low[1]);
    double v = double(high) * 0x1p-32 + (double(low) + 0.5) * 0x1p-64;
    double rest = 1 - v;
    if (rest < 0x1p-54) rest = 0x1p-54;
    double e = v < 0x1p-26 ? v + v * v * 0.5 : -log_of(rest);
    return -log_of(e);
}

[[maybe_unused]] inline Winner score(const Draw& d, int32_t index) {
    float z = (d.values[index] - d.peak) * d.inverse_temperature;
    return {double(z) + gumbel(uint32_t(d.ids ? d.ids[index] : index), d.key), index};
}

}  // namespace
}  // namespace gearshift

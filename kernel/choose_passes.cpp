// The baseline compilation of the loops of `choose`, the decision between it and AVX2, and the key of the noise.
#define WIDTH 4
#define PASSES choose_passes_baseline
#include "choose_passes.inc"

namespace gearshift {
namespace {

uint64_t scramble(uint64_t x) {      // the output function of SplitMix64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

}  // namespace

#ifdef GEARSHIFT_X86
extern const ChoosePasses choose_passes_avx2;
#endif

const ChoosePasses& choose_passes(bool wide) {
#ifdef GEARSHIFT_X86
    // All that the flags of *_avx2.cpp allow the compiler to use.
    if (wide && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
        __builtin_cpu_supports("bmi2"))
        return choose_passes_avx2;
#endif
    (void)wide;
    return choose_passes_baseline;
}

Winner noisy_score(const Draw& d, int32_t index) { return score(d, index); }

NoiseKey noise_key(uint64_t seed, int32_t choice, int32_t position) {
    constexpr uint64_t step = 0x9e3779b97f4a7c15ull;
    uint64_t x = scramble(seed + step);
    x = scramble((x ^ uint32_t(choice)) + step);
    x = scramble((x ^ uint32_t(position)) + step);
    uint64_t high = scramble(x + step), low = scramble(x + 2 * step);
    return {{uint32_t(high), uint32_t(high >> 32)}, {uint32_t(low), uint32_t(low >> 32)}};
}

double plain_log(double x) { return log_of(x); }

}  // namespace gearshift

// The loops over a whole vocabulary that `choose` is made of, in 16 fixed lanes and plain IEEE operations, so that the
// baseline and the AVX2 compilation of the same source give the same bits. They know values and places, no rules.
#pragma once
#include <cstdint>

namespace gearshift {

constexpr int LANES = 16;   // of every sum

// Tables of peaks: within a span of 32 blocks of LANES values, the largest of each lane.
constexpr int PEAK_SPAN = 32 * LANES;
constexpr int peak_count(int count) { return (count + PEAK_SPAN - 1) / PEAK_SPAN * LANES; }
// Calls visit(index) for the values behind one peak, in ascending order.
template <class Visit>
void visit_peak(int peak, int count, Visit visit) {
    int start = peak / LANES * PEAK_SPAN, end = start + PEAK_SPAN < count ? start + PEAK_SPAN : count;
    for (int i = start + peak % LANES; i < end; i += LANES) visit(i);
}

// A place in an array of values that is sorted by id, and so also a place in the order of choose.h.
struct Standing {
    float value;
    int32_t index;
};

struct Winner {
    double score;
    int32_t index;
};

struct Mass {
    double all;      // sum of exp((value - peak) * inverse_temperature)
    double before;   // of the values before a place
};

// What the noise of a choice is keyed by, mixed.
struct NoiseKey {
    uint32_t high[2], low[2];
};
NoiseKey noise_key(uint64_t seed, int32_t choice, int32_t position);

// Natural logarithm of a normal x > 0, relative error below 1e-13, in IEEE operations only.
double plain_log(double x);

// Values to draw from. ids: ascending, or null when they are 0, 1, 2, ...
struct Draw {
    const float* values;
    const int32_t* ids;
    int count;
    float peak;   // largest value
    float inverse_temperature;
    float least;   // least (value - peak) * inverse_temperature admitted
    NoiseKey key;
};

// z + noise of one value.
Winner noisy_score(const Draw&, int32_t index);

struct ChoosePasses {
    // Fills peaks[peak_count(count)]. False when a value is NaN or +inf.
    bool (*find_peaks)(const float* values, int count, float* peaks);
    // out = values where the bit is set, -inf elsewhere; in place is fine.
    void (*apply_mask)(const float* values, int count, const uint32_t* mask, float* out);
    // Sum of exp(value - peak); the same bits as mass(...).all at temperature 1.
    double (*whole_mass)(const float* values, int count, float peak);
    Mass (*mass)(const float* values, int count, float peak, float inverse_temperature, Standing place);
    // The largest z + noise of the values before `bound`, not less than `start`, which is one of them.
    Winner (*draw)(const Draw&, Standing bound, Winner start);
};

// wide: compiled for AVX2, where the processor has it.
const ChoosePasses& choose_passes(bool wide);

}  // namespace gearshift

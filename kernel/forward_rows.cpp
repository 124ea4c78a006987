// Compiled once per path. No standard containers or algorithms here: their inline code would be merged across paths.
#include "forward_rows.h"

#include "cache.h"
#include "forward_hadamard.h"
#include "forward_lanes.h"

namespace gearshift::GEARSHIFT_PATH {
namespace {

float inverse_rms(const float* in, float eps, int n) {
    Floats squares = all(0.0f);
    for (int i = 0; i < n; i += LANES) {
        const Floats x = load(in + i);
        squares = squares + x * x;
    }
    return 1.0f / __builtin_sqrtf(sum(squares) / float(n) + eps);
}

void norm(const float* in, const float* weight, float eps, int n, float* out) {
    const Floats factor = all(inverse_rms(in, eps, n));
    for (int i = 0; i < n; i += LANES) store(out + i, load(in + i) * factor * load(weight + i));
}

void add(const float* in, int n, float* residual) {
    for (int i = 0; i < n; i += LANES) store(residual + i, load(residual + i) + load(in + i));
}

void scale(const float* in, float factor, int n, float* out) {
    for (int i = 0; i < n; i += LANES) store(out + i, load(in + i) * all(factor));
}

GEARSHIFT_INLINE Floats times_sigmoid(Floats x, Floats exponent) {
    return x / (all(1.0f) + exp2(exponent * all(-LOG2_E)));
}

void activate(float* gate, const float* up, int n, bool gelu) {
    for (int i = 0; i < n; i += LANES) {
        const Floats x = load(gate + i);
        Floats argument = x;
        // 0.5 (1 + tanh z) is the sigmoid of 2z, here z = sqrt(2 / pi) (x + 0.044715 x^3).
        if (gelu) argument = all(1.59576912f) * (x + all(0.044715f) * x * x * x);
        store(gate + i, times_sigmoid(x, argument) * load(up + i));
    }
}

void finish(const float* in, const HeadForm& form, float* out) {
    const int n = form.head_dim, half = n / 2;
    for (int i = 0; i < n; i += LANES) {
        Floats x = load(in + i);
        if (form.bias) x = x + load(form.bias + i);
        store(out + i, x);
    }
    if (form.norm) norm(out, form.norm, form.eps, n, out);
    if (form.cosine) {
        if (form.interleaved) {
            for (int i = 0; i < half; ++i) {
                const float a = out[2 * i], b = out[2 * i + 1];
                out[2 * i] = a * form.cosine[i] - b * form.sine[i];
                out[2 * i + 1] = a * form.sine[i] + b * form.cosine[i];
            }
        } else {
            for (int i = 0; i < half; ++i) {
                const float a = out[i], b = out[i + half];
                out[i] = a * form.cosine[i] - b * form.sine[i];
                out[i + half] = a * form.sine[i] + b * form.cosine[i];
            }
        }
    }
    hadamard(out, n);
}

// Rounds to integers of at most `limit`; returns the scale. A head of (nearly) zeros gets zeros.
float to_integers(const float* in, int n, float limit, int32_t* out) {
    Floats peak = all(0.0f);
    for (int i = 0; i < n; i += LANES) peak = larger(magnitude(load(in + i)), peak);
    const float most = maximum(peak);
    const float factor = most > 1e-30f ? limit / most : 0.0f;
    for (int i = 0; i < n; i += LANES) {
        // Clamped as well, so that a NaN becomes some integer in range.
        const Floats x = smaller(larger(load(in + i) * all(factor), all(-limit)), all(limit));
        store(out + i, to_ints(x));
    }
    return most > 1e-30f ? most / limit : 0.0f;
}

void query(const float* in, const HeadForm& form, int16_t* out, float* scale_out) {
    alignas(64) float head[MAX_HEAD_DIM];
    alignas(64) int32_t integers[MAX_HEAD_DIM];
    finish(in, form, head);
    *scale_out = to_integers(head, form.head_dim, float(query_limit(form.fine_keys)), integers);
    for (int i = 0; i < form.head_dim; ++i) out[i] = int16_t(integers[i]);
}

void key(const float* in, const HeadForm& form, uint8_t* plane, int offset, float* scales) {
    alignas(64) float head[MAX_HEAD_DIM];
    alignas(64) int32_t integers[MAX_HEAD_DIM];
    finish(in, form, head);
    scales[offset] = to_integers(head, form.head_dim, float(key_limit(form.fine_keys)), integers);
    for (int i = 0; i < form.head_dim; i += 4) {
        if (form.fine_keys) {
            const int16_t quad[] = {int16_t(integers[i]), int16_t(integers[i + 1]), int16_t(integers[i + 2]),
                                    int16_t(integers[i + 3])};
            __builtin_memcpy(plane + (i * BLOCK_TOKENS + offset * 4) * sizeof(int16_t), quad, sizeof quad);
            continue;
        }
        const uint32_t quad = uint32_t(integers[i] & 255) | uint32_t(integers[i + 1] & 255) << 8 |
                              uint32_t(integers[i + 2] & 255) << 16 | uint32_t(integers[i + 3] & 255) << 24;
        __builtin_memcpy(plane + i * BLOCK_TOKENS + offset * 4, &quad, 4);
    }
}

void value(const float* in, const HeadForm& form, int8_t* plane, int offset, float* scales) {
    alignas(64) float head[MAX_HEAD_DIM];
    alignas(64) int32_t integers[MAX_HEAD_DIM];
    finish(in, form, head);
    scales[offset] = to_integers(head, form.head_dim, 127.0f, integers);
    int8_t* at = plane + size_t(offset / 4) * form.head_dim * 4 + offset % 4;
    for (int i = 0; i < form.head_dim; ++i) at[i * 4] = int8_t(integers[i]);
}

}  // namespace
}  // namespace gearshift::GEARSHIFT_PATH

#define GEARSHIFT_JOIN(a, b) a##b
#define GEARSHIFT_TABLE(path) GEARSHIFT_JOIN(rows_, path)
#define GEARSHIFT_TEXT(path) #path
#define GEARSHIFT_NAME(path) GEARSHIFT_TEXT(path)

namespace gearshift {
const RowPath GEARSHIFT_TABLE(GEARSHIFT_PATH) = {
    GEARSHIFT_NAME(GEARSHIFT_PATH), GEARSHIFT_PATH::norm,  GEARSHIFT_PATH::add, GEARSHIFT_PATH::scale,
    GEARSHIFT_PATH::activate,       GEARSHIFT_PATH::query, GEARSHIFT_PATH::key, GEARSHIFT_PATH::value,
    &GEARSHIFT_PATH::attention,
};
}  // namespace gearshift

// Decoders of ggml's block layouts. The order of the float operations is the one of the format's own reference,
// so the results are the same bits. Where a layout stores two nibbles per byte, the low nibbles come first.
#include "dequantize.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace gearshift {
namespace {

uint16_t read_u16(const uint8_t* p) {
    uint16_t v;
    std::memcpy(&v, p, 2);
    return v;
}

uint32_t read_u32(const uint8_t* p) {
    uint32_t v;
    std::memcpy(&v, p, 4);
    return v;
}

float from_bits(uint32_t bits) {
    float v;
    std::memcpy(&v, &bits, 4);
    return v;
}

// Without tables or F16C, so that it runs on any machine: shift the exponent into place and rescale, which also
// handles subnormal halves; infinity and NaN keep their meaning.
float from_half(uint16_t h) {
    const uint32_t sign = uint32_t(h & 0x8000) << 16;
    const uint32_t magnitude = uint32_t(h & 0x7fff) << 13;
    if ((h & 0x7c00) == 0x7c00) return from_bits(sign | magnitude | 0x7f800000);
    const float value = from_bits(magnitude) * from_bits((127 + 112) << 23);
    return sign ? -value : value;
}

float half_at(const uint8_t* p) { return from_half(read_u16(p)); }

// The 6-bit scale and minimum of sub-block j (0..7) out of the 12 bytes that Q4_K and Q5_K share.
void scale_and_min(int j, const uint8_t* p, int& scale, int& minimum) {
    if (j < 4) {
        scale = p[j] & 63;
        minimum = p[j + 4] & 63;
    } else {
        scale = (p[j + 4] & 15) | ((p[j - 4] >> 6) << 4);
        minimum = (p[j + 4] >> 4) | ((p[j] >> 6) << 4);
    }
}

void f32(const uint8_t* p, float* out) { std::memcpy(out, p, 4); }
void f16(const uint8_t* p, float* out) { out[0] = half_at(p); }
void bf16(const uint8_t* p, float* out) { out[0] = from_bits(uint32_t(read_u16(p)) << 16); }

void q8_0(const uint8_t* p, float* out) {
    const float d = half_at(p);
    for (int i = 0; i < 32; i++) out[i] = d * float(int8_t(p[2 + i]));
}

void q4_0(const uint8_t* p, float* out) {
    const float d = half_at(p);
    for (int i = 0; i < 16; i++) {
        out[i] = d * float((p[2 + i] & 15) - 8);
        out[i + 16] = d * float((p[2 + i] >> 4) - 8);
    }
}

void q4_1(const uint8_t* p, float* out) {
    const float d = half_at(p), m = half_at(p + 2);
    for (int i = 0; i < 16; i++) {
        out[i] = d * float(p[4 + i] & 15) + m;
        out[i + 16] = d * float(p[4 + i] >> 4) + m;
    }
}

void q5_0(const uint8_t* p, float* out) {
    const float d = half_at(p);
    const uint32_t high = read_u32(p + 2);
    for (int i = 0; i < 16; i++) {
        out[i] = d * float(((p[6 + i] & 15) | int((high >> i) & 1) << 4) - 16);
        out[i + 16] = d * float(((p[6 + i] >> 4) | int((high >> (i + 16)) & 1) << 4) - 16);
    }
}

void q5_1(const uint8_t* p, float* out) {
    const float d = half_at(p), m = half_at(p + 2);
    const uint32_t high = read_u32(p + 4);
    for (int i = 0; i < 16; i++) {
        out[i] = d * float((p[8 + i] & 15) | int((high >> i) & 1) << 4) + m;
        out[i + 16] = d * float((p[8 + i] >> 4) | int((high >> (i + 16)) & 1) << 4) + m;
    }
}

void q4_k(const uint8_t* p, float* out) {
    const float d = half_at(p), dmin = half_at(p + 2);
    for (int j = 0; j < 8; j++) {
        int scale, minimum;
        scale_and_min(j, p + 4, scale, minimum);
        const float dj = d * float(scale), mj = dmin * float(minimum);
        const uint8_t* q = p + 16 + 32 * (j / 2);
        const int shift = 4 * (j % 2);
        for (int i = 0; i < 32; i++) out[32 * j + i] = dj * float((q[i] >> shift) & 15) - mj;
    }
}

void q5_k(const uint8_t* p, float* out) {
    const float d = half_at(p), dmin = half_at(p + 2);
    const uint8_t* high = p + 16;
    for (int j = 0; j < 8; j++) {
        int scale, minimum;
        scale_and_min(j, p + 4, scale, minimum);
        const float dj = d * float(scale), mj = dmin * float(minimum);
        const uint8_t* q = p + 48 + 32 * (j / 2);
        const int shift = 4 * (j % 2);
        for (int i = 0; i < 32; i++) {
            const int code = ((q[i] >> shift) & 15) | ((high[i] >> j) & 1) << 4;
            out[32 * j + i] = dj * float(code) - mj;
        }
    }
}

void q6_k(const uint8_t* p, float* out) {
    const float d = half_at(p + 208);
    for (int half = 0; half < 2; half++) {
        const uint8_t* low = p + 64 * half;
        const uint8_t* high = p + 128 + 32 * half;
        for (int quarter = 0; quarter < 4; quarter++) {
            for (int i = 0; i < 32; i++) {
                const int nibble = (low[i + 32 * (quarter % 2)] >> (4 * (quarter / 2))) & 15;
                const int code = (nibble | ((high[i] >> (2 * quarter)) & 3) << 4) - 32;
                const int at = 128 * half + 32 * quarter + i;
                out[at] = d * float(int8_t(p[192 + at / 16])) * float(code);
            }
        }
    }
}

struct Decoder {
    int type;
    BlockShape shape;
    void (*decode)(const uint8_t*, float*);
};

constexpr Decoder DECODERS[] = {
    {GGML_F32, {1, 4}, f32},       {GGML_F16, {1, 2}, f16},       {GGML_BF16, {1, 2}, bf16},
    {GGML_Q8_0, {32, 34}, q8_0},   {GGML_Q4_0, {32, 18}, q4_0},   {GGML_Q4_1, {32, 20}, q4_1},
    {GGML_Q5_0, {32, 22}, q5_0},   {GGML_Q5_1, {32, 24}, q5_1},   {GGML_Q4_K, {256, 144}, q4_k},
    {GGML_Q5_K, {256, 176}, q5_k}, {GGML_Q6_K, {256, 210}, q6_k},
};

const Decoder& decoder_of(int type) {
    for (const Decoder& decoder : DECODERS)
        if (decoder.type == type) return decoder;
    throw std::invalid_argument("tensor type " + std::to_string(type) +
                                " is not supported; expected F32 (0), F16 (1), Q4_0 (2), Q4_1 (3), Q5_0 (6), Q5_1 (7), "
                                "Q8_0 (8), Q4_K (12), Q5_K (13), Q6_K (14) or BF16 (30)");
}

}  // namespace

BlockShape block_shape(int ggml_type) { return decoder_of(ggml_type).shape; }

size_t source_bytes(int ggml_type, size_t count) {
    const BlockShape shape = block_shape(ggml_type);
    if (count % size_t(shape.weights) != 0)
        throw std::invalid_argument(std::to_string(count) + " weights are not whole blocks of " +
                                    std::to_string(shape.weights) + " for tensor type " + std::to_string(ggml_type));
    return count / size_t(shape.weights) * size_t(shape.bytes);
}

void dequantize(const uint8_t* source, int ggml_type, size_t count, float* out) {
    const Decoder& decoder = decoder_of(ggml_type);
    const size_t blocks = count / size_t(decoder.shape.weights);
    for (size_t b = 0; b < blocks; b++)
        decoder.decode(source + b * size_t(decoder.shape.bytes), out + b * size_t(decoder.shape.weights));
}

bool is_affine4(int ggml_type) {
    return ggml_type == GGML_Q4_0 || ggml_type == GGML_Q4_1 || ggml_type == GGML_Q4_K;
}

void affine4_blocks(const uint8_t* source, int ggml_type, size_t count, uint8_t* codes, float* d, float* m) {
    if (ggml_type == GGML_Q4_K) {
        for (size_t b = 0; b < count / 256; b++, source += 144) {
            for (int j = 0; j < 8; j++) {
                int scale, minimum;
                scale_and_min(j, source + 4, scale, minimum);
                d[8 * b + j] = half_at(source) * float(scale);
                m[8 * b + j] = -(half_at(source + 2) * float(minimum));
                for (int i = 0; i < 32; i++)
                    codes[256 * b + 32 * j + i] = (source[16 + 32 * (j / 2) + i] >> (4 * (j % 2))) & 15;
            }
        }
        return;
    }
    const int bytes = block_shape(ggml_type).bytes;
    for (size_t b = 0; b < count / 32; b++, source += bytes) {
        const uint8_t* q = source + bytes - 16;
        d[b] = half_at(source);
        m[b] = ggml_type == GGML_Q4_1 ? half_at(source + 2) : -8.0f * d[b];
        for (int i = 0; i < 16; i++) {
            codes[32 * b + i] = q[i] & 15;
            codes[32 * b + i + 16] = q[i] >> 4;
        }
    }
}

}  // namespace gearshift

// Linear layers in exact integers: the packed weight layout, quantised activations, and one function table
// per ISA path. Every path computes the same integer sums, so all paths give the same bits.
//
// Numbers. Input channels come in blocks of 32. The weight of output channel c at input k of block b is
//     w = s_c * w_int          s_c: float32 per output channel
//   4 bits: w_int = k_b * q + n_b          q 0..15, k_b 0..255 (u8), n_b int16
//   8 bits: w_int = k_b * (q - 128)        q 1..255 (u8), k_b 1..255 (u8)
// A row of activations has one scale: x = s_x * x_int, |x_int| <= limit; x_int = 128 * hi + lo, lo in [-64, 63].
// Quantising: x_int = round to nearest even of v * (limit / max|v|), clamped; s_x = max|v| / limit. A row whose max|v| is
// below TINY_ROW is a zero row with s_x = 0. NaN becomes +limit (on every path).
// S = sum over k of w_int * x_int is exact in int32 within each segment of SEGMENT_K inputs: packing keeps
//     sum over the segment of |w_int| * limit < 2^31   for every channel
// so intermediate int32 sums may wrap. y = float(S_0) * (s_c * s_x), plus float(S_i) * (s_c * s_x) for later segments in
// order; no FMA contraction (build with -ffp-contract=off).
//
// Layout. Output channels in groups of GROUP = 16 (the last group padded with zero weights), inputs padded with zero
// weights to a multiple of TILE_K = 64. A packed matrix is
//     float scale[padded n_out]                                   then, aligned to 64 bytes,
//     for each group: for each tile of 64 inputs (two blocks): one record
//   4-bit record (608 bytes): 512 codes, 32 k, 64 n
//     codes: 8 vectors v of 64 bytes; byte 4*c + j holds, for channel c of the group,
//            low nibble: q of input 8*v + j, high nibble: q of input 8*v + 4 + j   (so block 0 is v 0..3, block 1 is v 4..7)
//     k: k_b of block 0 for channels 0..15, then of block 1
//     n: int16 pairs (n of block 0, n of block 1) for channels 0..15
//   8-bit record (1056 bytes): 1024 codes, 32 k
//     codes: 16 vectors v of 64 bytes; byte 4*c + j holds q of input 4*v + j of channel c
//     k: as above
#pragma once
#include <cstddef>
#include <cstdint>

namespace gearshift {

constexpr int GROUP = 16;
constexpr int TILE_K = 64;
constexpr int BLOCK_K = 32;
constexpr int SEGMENT_K = 2048;
constexpr int RECORD_4 = 608;
constexpr int RECORD_8 = 1056;

constexpr float TINY_ROW = 1e-30f;

// |x_int| <= limit. The larger input width gets fewer levels so that sums stay exact with well-filled weights.
constexpr int activation_limit(int n_in) { return n_in <= 1024 ? 8000 : 4000; }

// A view of one packed matrix.
struct Linear {
    int n_out = 0, n_in = 0, bits = 0;
    const float* scale = nullptr;       // [padded n_out]
    const uint8_t* records = nullptr;   // [groups][tiles][RECORD_4 or RECORD_8]
    int groups() const { return (n_out + GROUP - 1) / GROUP; }
    int tiles() const { return (n_in + TILE_K - 1) / TILE_K; }
    size_t record_bytes() const { return bits == 4 ? RECORD_4 : RECORD_8; }
};

// 4 for the affine 4-bit source types, 8 for every other supported one.
int default_bits(int ggml_type);
size_t packed_bytes(int n_out, int n_in, int bits);
// Throws std::invalid_argument when sizes do not agree.
Linear view_packed(const uint8_t* data, size_t bytes, int n_out, int n_in, int bits);
// Packs a GGUF matrix of n_out rows of n_in weights (whole source blocks). bits: 4, 8, or 0 for default_bits.
// `out` holds packed_bytes(). The result does not depend on `threads` or the machine. Throws std::invalid_argument for
// unsupported types, sizes that do not agree, and weights that are not finite.
void pack(const uint8_t* source, size_t bytes, int ggml_type, int n_out, int n_in, int bits, int threads, uint8_t* out);
// One output channel as float32 [n_in] (embedding look-up, tests).
void unpack_channel(const Linear&, int channel, float* out);

// Quantised activations of up to `rows` rows of n_in inputs, in every form that some path reads.
struct Activations {
    int rows = 0, n_in = 0, padded = 0;   // padded = tiles * 64
    int16_t* x = nullptr;                 // [rows][padded], zeros beyond n_in
    int8_t* hi = nullptr;                 // [rows][padded]
    int8_t* lo = nullptr;                 // [rows][padded]
    int32_t* block_sums = nullptr;        // [rows][padded / 32]
    float* scale = nullptr;               // [rows]
};
size_t activation_bytes(int rows, int n_in);                              // bytes of one arena, 64-byte aligned parts
Activations lay_out_activations(uint8_t* arena, int rows, int n_in);

// One ISA path. All functions are thread-safe; ranges split the work among threads.
struct LinearPath {
    const char* name;
    // Quantise rows [row_begin, row_end) of `in` (row stride in floats).
    void (*quantize)(const float* in, size_t stride, Activations& out, int row_begin, int row_end);
    // out[r * stride + c] for all rows and the channels of groups [group_begin, group_end), c < n_out only.
    // scratch: at least scratch_bytes(), 64-byte aligned, one per thread.
    void (*multiply)(const Linear&, const Activations&, int group_begin, int group_end, float* out, size_t stride,
                     uint8_t* scratch);
    size_t (*scratch_bytes)(int max_rows, int max_n_in);
};

extern const LinearPath linear_portable;
#ifdef GEARSHIFT_X86
extern const LinearPath linear_avx2;
extern const LinearPath linear_avx512;
extern const LinearPath linear_amx;
#endif

}  // namespace gearshift

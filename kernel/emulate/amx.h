// The AMX tile instructions that linear_amx.cpp uses, as Intel's manual defines them, for tests only: shapes come from
// the configuration of the thread, unused rows and columns are zero, and what a processor would fault on aborts.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace gearshift {

struct TileState {
    bool configured = false;
    int rows[8] = {}, bytes_per_row[8] = {};
    uint8_t data[8][16][64] = {};

    void expect(bool fine, const char* what) const {
        if (fine) return;
        std::fprintf(stderr, "AMX emulation: %s\n", what);
        std::abort();
    }
    void expect_configured(int tile) const {
        expect(configured && rows[tile] > 0, "a tile is used that no configuration covers");
    }
};

inline thread_local TileState tile_state;

inline void tile_configure(const void* config) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes_per_row[16];
        uint8_t rows[16];
    } c;
    static_assert(sizeof c == 64);
    std::memcpy(&c, config, sizeof c);
    TileState& s = tile_state;
    s = TileState();
    s.expect(c.palette == 1 && c.start_row == 0, "palette 1 from row 0 expected");
    for (int i = 0; i < 16; i++) {
        s.expect(i >= 14 || c.reserved[i] == 0, "reserved bytes of the configuration are not zero");
        s.expect(i < 8 || (c.bytes_per_row[i] == 0 && c.rows[i] == 0), "there are 8 tiles");
        s.expect(c.bytes_per_row[i] <= 64 && c.rows[i] <= 16, "tiles have at most 16 rows of 64 bytes");
        s.expect((c.bytes_per_row[i] == 0) == (c.rows[i] == 0), "a tile has rows without bytes, or bytes without rows");
        if (i < 8) {
            s.rows[i] = c.rows[i];
            s.bytes_per_row[i] = c.bytes_per_row[i];
        }
    }
    s.configured = true;
}
inline void tile_release() { tile_state = TileState(); }

template <int TILE>
void tile_zero() {
    tile_state.expect_configured(TILE);
    std::memset(tile_state.data[TILE], 0, sizeof tile_state.data[TILE]);
}
template <int TILE>
void tile_load(const void* from, size_t stride) {
    TileState& s = tile_state;
    tile_zero<TILE>();
    for (int r = 0; r < s.rows[TILE]; r++)
        std::memcpy(s.data[TILE][r], static_cast<const uint8_t*>(from) + size_t(r) * stride,
                    size_t(s.bytes_per_row[TILE]));
}
template <int TILE>
void tile_store(void* to, size_t stride) {
    const TileState& s = tile_state;
    s.expect_configured(TILE);
    for (int r = 0; r < s.rows[TILE]; r++)
        std::memcpy(static_cast<uint8_t*>(to) + size_t(r) * stride, s.data[TILE][r], size_t(s.bytes_per_row[TILE]));
}

// SUM[m][n] += sum over k and j < 4 of A[m][4 k + j] * B[k][4 n + j], in wrapping 32-bit integers.
template <int SUM, int A, int B, class Second>
void tile_dot() {
    static_assert(SUM != A && SUM != B && A != B, "the three tiles of a product differ");
    TileState& s = tile_state;
    for (int tile : {SUM, A, B}) s.expect_configured(tile);
    s.expect(
        s.rows[A] == s.rows[SUM] && s.bytes_per_row[A] == 4 * s.rows[B] && s.bytes_per_row[B] == s.bytes_per_row[SUM],
        "the shapes of a product do not agree");
    for (int m = 0; m < s.rows[SUM]; m++) {
        for (int n = 0; n < s.bytes_per_row[SUM] / 4; n++) {
            uint32_t sum;
            std::memcpy(&sum, s.data[SUM][m] + 4 * n, 4);
            for (int k = 0; k < s.rows[B]; k++)
                for (int j = 0; j < 4; j++)
                    sum +=
                        uint32_t(int32_t(int8_t(s.data[A][m][4 * k + j])) * int32_t(Second(s.data[B][k][4 * n + j])));
            std::memcpy(s.data[SUM][m] + 4 * n, &sum, 4);
        }
    }
}
template <int SUM, int A, int B>
void tile_dot_signed() {
    tile_dot<SUM, A, B, int8_t>();
}
template <int SUM, int A, int B>
void tile_dot_unsigned() {
    tile_dot<SUM, A, B, uint8_t>();
}

}  // namespace gearshift

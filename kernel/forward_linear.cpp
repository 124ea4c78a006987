// The linear layers of a step: how their output groups and rows are split among the members of the team.
#include "forward_step.h"

namespace gearshift {
namespace {

constexpr int STREAM_ROWS = 8;   // up to here weights are read in one stream per member
constexpr int ROW_TILE = 64;     // rows per task: their activations fit the second level cache
constexpr int TASKS_EACH = 3;    // least tasks of a layer per member, so that a slow core holds nobody up
constexpr int MOST_GROUPS = 24;  // per task

Activations rows_of(const Activations& all, int begin, int end) {
    Activations part = all;
    part.rows = end - begin;
    part.x += size_t(begin) * all.padded;
    part.hi += size_t(begin) * all.padded;
    part.lo += size_t(begin) * all.padded;
    part.block_sums += size_t(begin) * (all.padded / BLOCK_K);
    part.scale += begin;
    return part;
}

// Calls task(first group, last group, first row, last row) for parts of `groups` groups and `rows` rows: an unbroken part
// of the weights for each member when there are few rows, which reads memory in one stream; else tasks of nearly equal
// size. Not smaller than needed: each task brings its rows into the order that its products read.
template <class Task>
void split_groups(Threads& team, int groups, int rows, int member, Task task) {
    const int members = team.count();
    if (rows <= STREAM_ROWS) {
        task(groups * member / members, groups * (member + 1) / members, 0, rows);
        return;
    }
    const int row_tiles = (rows + ROW_TILE - 1) / ROW_TILE, fair = (TASKS_EACH * members + row_tiles - 1) / row_tiles;
    const int parts = std::min(groups, std::max(fair, (groups + MOST_GROUPS - 1) / MOST_GROUPS));
    for (int i; (i = team.ticket()) < parts * row_tiles;) {
        const int part = i / row_tiles, first = i % row_tiles * ROW_TILE;
        task(int(int64_t(groups) * part / parts), int(int64_t(groups) * (part + 1) / parts), first,
             std::min(first + ROW_TILE, rows));
    }
}

}  // namespace

void Step::multiply(const Product* products, int count, const Activations& in, int begin, int end, int first_row,
                    Member& own) {
    for (int i = 0; i < count; ++i) {
        const int groups = products[i].linear->groups();
        if (begin < groups && end > 0)
            linear_.multiply(*products[i].linear, in, std::max(begin, 0), std::min(end, groups),
                             products[i].out + size_t(first_row) * products[i].stride, products[i].stride,
                             own.linear_scratch);
        begin -= groups;
        end -= groups;
    }
}

void Step::multiply_all(const Product* products, int count, const Activations& in, Member& own, int member) {
    int groups = 0;
    for (int i = 0; i < count; ++i) groups += products[i].linear->groups();
    split_groups(team_, groups, in.rows, member, [&](int begin, int end, int first, int last) {
        multiply(products, count, rows_of(in, first, last), begin, end, first, own);
    });
}

// gate_ = activation(gate) * up, by whoever has just computed both.
void Step::feed_in(const LayerWeights& weights, const Activations& in, Member& own, int member) {
    const size_t width = shape_.d_ff;
    split_groups(team_, weights.gate.groups(), in.rows, member, [&](int begin, int end, int first, int last) {
        const Activations part = rows_of(in, first, last);
        const Product gate{&weights.gate, gate_, width}, up{&weights.up, up_, width};
        multiply(&gate, 1, part, begin, end, first, own);
        multiply(&up, 1, part, begin, end, first, own);
        const size_t channel = size_t(begin) * GROUP;
        const int channels = (end - begin) * GROUP;   // d_ff is a whole number of groups
        for (int row = first; row < last && channels > 0; ++row)
            path_.activate(gate_ + row * width + channel, up_ + row * width + channel, channels, shape_.gelu);
    });
}

}  // namespace gearshift

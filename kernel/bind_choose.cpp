// Python's door to `choose` alone, for tests and measurements; `Model.step` chooses within the kernel.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "choose.h"

namespace nb = nanobind;

namespace gearshift {
namespace {

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T, size_t N>
using Returned = nb::ndarray<nb::numpy, T, nb::ndim<N>>;

void expect(bool fine, const char* what) {
    if (!fine) throw nb::value_error(what);
}

template <class T>
T* new_array(size_t size, nb::capsule& owner) {
    T* data = new T[size];
    owner = nb::capsule(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return data;
}

template <class T>
void check_ids(const Vector<int32_t>& offsets, const Vector<int32_t>& ids, const Vector<T>& values, size_t rows,
               int vocab, const char* what) {
    expect(offsets.shape(0) == rows + 1 && offsets(0) == 0 && ids.shape(0) == values.shape(0) &&
               size_t(offsets(rows)) == ids.shape(0),
           what);
    for (size_t r = 0; r < rows; ++r) expect(offsets(r) <= offsets(r + 1), what);
    for (size_t i = 0; i < ids.shape(0); ++i) expect(ids(i) >= 0 && ids(i) < vocab, what);
}

nb::tuple choose_rows(Matrix<float> logits, Vector<float> temperature, Vector<int32_t> top_k, Vector<float> top_p,
                      Vector<float> min_p, Vector<uint64_t> seed, Vector<int32_t> choice, Vector<int32_t> position,
                      Vector<float> presence_penalty, Vector<float> frequency_penalty, Vector<float> repetition_penalty,
                      Vector<int32_t> count_offsets, Vector<int32_t> count_ids, Vector<int32_t> count_values,
                      Vector<int32_t> bias_offsets, Vector<int32_t> bias_ids, Vector<float> bias_values,
                      Vector<int32_t> mask_index, Matrix<uint32_t> masks, int top_logprobs, bool wide) {
    size_t rows = logits.shape(0), vocab = logits.shape(1), top = size_t(top_logprobs);
    expect(vocab > 0 && vocab < size_t(1) << 30, "logits: expected [rows, vocab]");
    expect(top_logprobs >= 0 && top_logprobs <= MAX_TOP_LOGPROBS, "top_logprobs: expected 0 to MAX_TOP_LOGPROBS");
    for (size_t n : {temperature.shape(0), top_k.shape(0), top_p.shape(0), min_p.shape(0), seed.shape(0),
                     choice.shape(0), position.shape(0), presence_penalty.shape(0), frequency_penalty.shape(0),
                     repetition_penalty.shape(0), mask_index.shape(0)})
        expect(n == rows, "every parameter needs one entry per row of logits");
    check_ids(count_offsets, count_ids, count_values, rows, int(vocab), "counts: offsets or ids out of range");
    check_ids(bias_offsets, bias_ids, bias_values, rows, int(vocab), "biases: offsets or ids out of range");
    expect(masks.shape(0) == 0 || masks.shape(1) == (vocab + 31) / 32, "masks: expected ceil(vocab / 32) words");
    for (size_t r = 0; r < rows; ++r)
        expect(mask_index(r) >= -1 && mask_index(r) < int64_t(masks.shape(0)), "mask_index: no such mask");

    nb::capsule owners[4];
    int32_t* ids = new_array<int32_t>(rows, owners[0]);
    float* logprobs = new_array<float>(rows, owners[1]);
    int32_t* top_ids = new_array<int32_t>(rows * top, owners[2]);
    float* tops = new_array<float>(rows * top, owners[3]);
    {
        nb::gil_scoped_release release;
        Chooser chooser(int(vocab), wide);
        for (size_t r = 0; r < rows; ++r) {
            ChoiceParameters p;
            p.temperature = temperature(r);
            p.top_k = top_k(r);
            p.top_p = top_p(r);
            p.min_p = min_p(r);
            p.seed = seed(r);
            p.choice = choice(r);
            p.position = position(r);
            p.presence_penalty = presence_penalty(r);
            p.frequency_penalty = frequency_penalty(r);
            p.repetition_penalty = repetition_penalty(r);
            p.counts = count_offsets(r + 1) - count_offsets(r);
            p.count_ids = count_ids.data() + count_offsets(r);
            p.count_values = count_values.data() + count_offsets(r);
            p.biases = bias_offsets(r + 1) - bias_offsets(r);
            p.bias_ids = bias_ids.data() + bias_offsets(r);
            p.bias_values = bias_values.data() + bias_offsets(r);
            if (mask_index(r) >= 0) p.mask = masks.data() + size_t(mask_index(r)) * masks.shape(1);
            Choice c = chooser.choose(logits.data() + r * vocab, p, top_logprobs, top_ids + r * top, tops + r * top);
            ids[r] = c.id;
            logprobs[r] = c.logprob;
        }
    }
    return nb::make_tuple(Returned<int32_t, 1>(ids, {rows}, owners[0]), Returned<float, 1>(logprobs, {rows}, owners[1]),
                          Returned<int32_t, 2>(top_ids, {rows, top}, owners[2]),
                          Returned<float, 2>(tops, {rows, top}, owners[3]));
}

}  // namespace

void bind_choose(nb::module_& m) {
    using namespace nb::literals;
    m.def("choose_rows", &choose_rows, "logits"_a, nb::kw_only(), "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a,
          "seed"_a, "choice"_a, "position"_a, "presence_penalty"_a, "frequency_penalty"_a, "repetition_penalty"_a,
          "count_offsets"_a, "count_ids"_a, "count_values"_a, "bias_offsets"_a, "bias_ids"_a, "bias_values"_a,
          "mask_index"_a, "masks"_a, "top_logprobs"_a = 0, "wide"_a = true);
}

}  // namespace gearshift

// The extension module gearshift._kernel: turns Python arguments into the kernel's and checks their lengths. The
// contract is src/gearshift/_kernel.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "dequantize.h"
#include "forward.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gearshift {

void bind_choose(nb::module_& m);   // bind_choose.cpp

namespace {

constexpr int FORMAT_VERSION = 2;

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Logits = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Any object with a contiguous buffer of bytes, held for as long as this lives.
class Buffer {
public:
    explicit Buffer(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    ~Buffer() { PyBuffer_Release(&view_); }
    Buffer(const Buffer&) = delete;
    const uint8_t* data() const { return static_cast<const uint8_t*>(view_.buf); }
    size_t size() const { return size_t(view_.len); }

private:
    Py_buffer view_;
};

template <class T>
nb::ndarray<nb::numpy, T> owned(std::unique_ptr<T[]> data, std::initializer_list<size_t> shape) {
    T* raw = data.release();
    nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::ndarray<nb::numpy, T>(raw, shape, owner);
}

void check_length(const char* name, size_t length, size_t expected) {
    if (length != expected)
        throw std::invalid_argument(std::string(name) + " has " + std::to_string(length) + " entries, expected " +
                                    std::to_string(expected));
}

int positive(const char* name, int64_t value) {
    if (value < 1 || value > (1 << 24))
        throw std::invalid_argument(std::string(name) + " is " + std::to_string(value) + ", expected 1 to 16777216");
    return int(value);
}

int check_bits(int bits, int type) {
    if (bits == 0) return default_bits(type);
    if (bits != 4 && bits != 8) throw std::invalid_argument("bits is " + std::to_string(bits) + ", expected 4, 8 or 0");
    return bits;
}

nb::object dequantize_array(nb::handle source, int type, int64_t count) {
    if (count < 0) throw std::invalid_argument("count is " + std::to_string(count) + ", expected 0 or more");
    const Buffer data(source);
    const size_t need = source_bytes(type, size_t(count));
    if (data.size() < need)
        throw std::invalid_argument(std::to_string(count) + " weights of this type take " + std::to_string(need) +
                                    " bytes, but data has " + std::to_string(data.size()));
    std::unique_ptr<float[]> out(new float[size_t(count)]);
    {
        nb::gil_scoped_release release;
        dequantize(data.data(), type, size_t(count), out.get());
    }
    return nb::cast(owned(std::move(out), {size_t(count)}));
}

nb::bytes pack_linear(nb::handle source, int type, int64_t n_out, int64_t n_in, int bits, int threads) {
    const int outputs = positive("n_out", n_out), inputs = positive("n_in", n_in);
    bits = check_bits(bits, type);
    if (threads < 1 || threads > 256)
        throw std::invalid_argument("threads is " + std::to_string(threads) + ", expected 1 to 256");
    const Buffer data(source);
    PyObject* raw = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(packed_bytes(outputs, inputs, bits)));
    if (!raw) throw nb::python_error();
    nb::bytes out = nb::steal<nb::bytes>(raw);
    auto* to = reinterpret_cast<uint8_t*>(PyBytes_AS_STRING(raw));
    {
        nb::gil_scoped_release release;
        pack(data.data(), data.size(), type, outputs, inputs, bits, threads, to);
    }
    return out;
}

nb::object unpack_linear(nb::handle source, int64_t n_out, int64_t n_in, int bits) {
    const int outputs = positive("n_out", n_out), inputs = positive("n_in", n_in);
    const Buffer data(source);
    const Linear linear = view_packed(data.data(), data.size(), outputs, inputs, bits);
    std::unique_ptr<float[]> out(new float[size_t(outputs) * size_t(inputs)]);
    {
        nb::gil_scoped_release release;
        for (int i = 0; i < outputs; ++i) unpack_channel(linear, i, out.get() + size_t(i) * size_t(inputs));
    }
    return nb::cast(owned(std::move(out), {size_t(outputs), size_t(inputs)}));
}

template <class T>
T field(const nb::object& config, const char* name) {
    nb::object value;
    try {
        value = config[name];
    } catch (const nb::python_error&) {
        throw std::invalid_argument(std::string("config: the key '") + name + "' is missing");
    }
    // Numbers of any kind, so that a float field may be given as 1 and a flag as 0 or 1.
    const double number = PyFloat_AsDouble(value.ptr());
    if (PyErr_Occurred()) {
        PyErr_Clear();
        throw std::invalid_argument(std::string("config: '") + name + "' is not a number");
    }
    if constexpr (std::is_same_v<T, float>) {
        return float(number);
    } else {
        const double most = std::is_same_v<T, bool> ? 1.0 : double(std::numeric_limits<int>::max());
        if (!(number >= 0 && number <= most) || number != std::floor(number))
            throw std::invalid_argument(std::string("config: '") + name + "' is " + std::to_string(number) +
                                        (std::is_same_v<T, bool> ? ", expected a flag" : ", expected a whole number"));
        return T(number);
    }
}

Shape shape_of(const nb::object& config) {
    Shape s;
    s.layers = field<int>(config, "layers");
    s.d_model = field<int>(config, "d_model");
    s.d_ff = field<int>(config, "d_ff");
    s.heads = field<int>(config, "heads");
    s.kv_heads = field<int>(config, "kv_heads");
    s.head_dim = field<int>(config, "head_dim");
    s.vocab = field<int>(config, "vocab");
    s.context = field<int>(config, "context");
    s.rms_eps = field<float>(config, "rms_eps");
    s.rope_base = field<float>(config, "rope_base");
    s.rope_scale = field<float>(config, "rope_scale");
    s.rope_interleaved = field<bool>(config, "rope_interleaved");
    s.sliding_window = field<int>(config, "sliding_window");
    s.global_every = field<int>(config, "global_every");
    s.rope_base_local = field<float>(config, "rope_base_local");
    s.attention_scale = field<float>(config, "attention_scale");
    s.qkv_bias = field<bool>(config, "qkv_bias");
    s.qk_norm = field<bool>(config, "qk_norm");
    s.post_norms = field<bool>(config, "post_norms");
    s.gelu = field<bool>(config, "gelu");
    s.embedding_scale = field<float>(config, "embedding_scale");
    s.tied_head = field<bool>(config, "tied_head");
    s.rope_factors = field<bool>(config, "rope_factors");
    return s;
}

std::map<std::string, Place> places_of(const nb::object& tensors) {
    std::map<std::string, Place> places;
    for (nb::handle item : nb::object(tensors.attr("items")())) {
        const auto name = nb::cast<std::string>(item[0]);
        int64_t numbers[5];
        try {
            const nb::object entry = item[1];
            if (nb::len(entry) != 5) throw std::invalid_argument("");
            for (int i = 0; i < 5; ++i) numbers[i] = nb::cast<int64_t>(entry[i]);
        } catch (const std::exception&) {
            throw std::invalid_argument("tensor " + name + ": expected (offset, bytes, n_out, n_in, bits)");
        }
        constexpr int64_t MOST = std::numeric_limits<int>::max();
        for (int i = 0; i < 5; ++i)
            if (numbers[i] < 0 || (i >= 2 && numbers[i] > MOST))
                throw std::invalid_argument("tensor " + name + ": " + std::to_string(numbers[i]) + " is out of range");
        places[name] = {uint64_t(numbers[0]), uint64_t(numbers[1]), int(numbers[2]), int(numbers[3]), int(numbers[4])};
    }
    return places;
}

// A model together with the mapping that its weights lie in.
struct BoundModel {
    BoundModel(const nb::object& mapping, const nb::object& config, const nb::object& tensors, const std::string& isa)
        : buffer(mapping), model(buffer.data(), buffer.size(), shape_of(config), places_of(tensors), find_path(isa)) {}
    Buffer buffer;
    Model model;
};

nb::tuple step(BoundModel& self, Cache& cache, Threads& threads, Array<int32_t> tokens, Array<int32_t> positions,
               Array<int32_t> sequences, Table<int32_t> tables, Array<int32_t> chosen, Array<float> temperature,
               Array<int32_t> top_k, Array<float> top_p, Array<float> min_p, Array<uint64_t> seed, Array<int32_t> choice,
               Array<float> presence_penalty, Array<float> frequency_penalty, Array<float> repetition_penalty,
               Array<int32_t> count_offsets, Array<int32_t> count_ids, Array<int32_t> count_values,
               Array<int32_t> bias_offsets, Array<int32_t> bias_ids, Array<float> bias_values, Array<int32_t> mask_index,
               Table<uint32_t> masks, int top_logprobs, std::optional<Logits> logits) {
    constexpr size_t MOST_ROWS = 1 << 16;
    const size_t rows = tokens.shape(0), choices = chosen.shape(0);
    if (rows > MOST_ROWS)
        throw std::invalid_argument(std::to_string(rows) + " rows in one step, expected at most " + std::to_string(MOST_ROWS));
    if (choices > rows) throw std::invalid_argument("chosen has more entries than there are rows");
    check_length("positions", positions.shape(0), rows);
    check_length("sequences", sequences.shape(0), rows);
    const std::pair<const char*, size_t> per_choice[] = {
        {"temperature", temperature.shape(0)},           {"top_k", top_k.shape(0)},
        {"top_p", top_p.shape(0)},                       {"min_p", min_p.shape(0)},
        {"seed", seed.shape(0)},                         {"choice", choice.shape(0)},
        {"presence_penalty", presence_penalty.shape(0)}, {"frequency_penalty", frequency_penalty.shape(0)},
        {"mask_index", mask_index.shape(0)},             {"repetition_penalty", repetition_penalty.shape(0)},
    };
    for (const auto& [name, length] : per_choice) check_length(name, length, choices);
    check_length("count_offsets", count_offsets.shape(0), choices + 1);
    check_length("bias_offsets", bias_offsets.shape(0), choices + 1);
    check_length("count_values", count_values.shape(0), count_ids.shape(0));
    check_length("bias_values", bias_values.shape(0), bias_ids.shape(0));
    constexpr size_t MOST_ENTRIES = std::numeric_limits<int32_t>::max();
    if (tables.shape(0) > MOST_ENTRIES || tables.shape(1) > MOST_ENTRIES || masks.shape(0) > MOST_ENTRIES ||
        masks.shape(1) > MOST_ENTRIES)
        throw std::invalid_argument("tables or masks have more than 2^31 - 1 rows or columns");
    if (top_logprobs < 0 || top_logprobs > MAX_TOP_LOGPROBS)
        throw std::invalid_argument("top_logprobs is " + std::to_string(top_logprobs) + ", expected 0 to " +
                                    std::to_string(MAX_TOP_LOGPROBS));
    if (logits) {
        check_length("logits", logits->shape(0), choices);
        if (logits->shape(1) != size_t(self.model.shape().vocab))
            throw std::invalid_argument("logits has " + std::to_string(logits->shape(1)) + " columns, expected " +
                                        std::to_string(self.model.shape().vocab));
    }

    StepInput in;
    in.rows = int(rows);
    in.sequences = int(tables.shape(0));
    in.table_width = int(tables.shape(1));
    in.choices = int(choices);
    in.top = top_logprobs;
    in.tokens = tokens.data();
    in.positions = positions.data();
    in.sequence_of = sequences.data();
    in.tables = tables.data();
    in.chosen = chosen.data();
    in.temperature = temperature.data();
    in.top_k = top_k.data();
    in.top_p = top_p.data();
    in.min_p = min_p.data();
    in.seed = seed.data();
    in.choice = choice.data();
    in.presence_penalty = presence_penalty.data();
    in.frequency_penalty = frequency_penalty.data();
    in.repetition_penalty = repetition_penalty.data();
    in.count_offsets = count_offsets.data();
    in.count_ids = count_ids.data();
    in.count_values = count_values.data();
    in.bias_offsets = bias_offsets.data();
    in.bias_ids = bias_ids.data();
    in.bias_values = bias_values.data();
    in.mask_index = mask_index.data();
    in.masks = masks.data();
    in.mask_rows = int(masks.shape(0));
    in.mask_words = int(masks.shape(1));
    in.counts = count_ids.shape(0);
    in.biases = bias_ids.shape(0);

    const size_t width = size_t(top_logprobs);
    std::unique_ptr<int32_t[]> ids(new int32_t[choices]), top_ids(new int32_t[choices * width]);
    std::unique_ptr<float[]> logprobs(new float[choices]), top(new float[choices * width]);
    {
        nb::gil_scoped_release release;
        self.model.step(cache, threads, in,
                        {ids.get(), top_ids.get(), logprobs.get(), top.get(), logits ? logits->data() : nullptr});
    }
    return nb::make_tuple(owned(std::move(ids), {choices}), owned(std::move(logprobs), {choices}),
                          owned(std::move(top_ids), {choices, width}), owned(std::move(top), {choices, width}));
}

std::vector<std::string> isa_paths() {
    std::vector<std::string> names;
    for (const Path& path : granted_paths()) names.emplace_back(path.name);
    return names;
}

}  // namespace
}  // namespace gearshift

NB_MODULE(_kernel, m) {
    using namespace gearshift;
    // A server ends with its engine alive: what nanobind would report at exit is no leak.
    nb::set_leak_warnings(false);
    // An array of another type must not be converted: its numbers could change, and logits would go into the copy.
    const auto strict = [](const char* name) { return nb::arg(name).noconvert(); };
    granted_paths();   // asks for AMX before any thread of ours starts
    m.attr("BLOCK_TOKENS") = BLOCK_TOKENS;
    m.attr("MAX_TOP_LOGPROBS") = MAX_TOP_LOGPROBS;
    m.attr("FORMAT_VERSION") = FORMAT_VERSION;
    m.def("isa_paths", isa_paths);
    m.def("dequantize", dequantize_array, "data"_a, "ggml_type"_a, "count"_a);
    m.def("pack_linear", pack_linear, "data"_a, "ggml_type"_a, "n_out"_a, "n_in"_a, "bits"_a, "threads"_a = 2);
    m.def(
        "packed_bytes",
        [](int64_t n_out, int64_t n_in, int bits) {
            if (bits == 0) throw std::invalid_argument("bits is 0, expected 4 or 8");
            return packed_bytes(positive("n_out", n_out), positive("n_in", n_in), check_bits(bits, 0));
        },
        "n_out"_a, "n_in"_a, "bits"_a);
    m.def("unpack_linear", unpack_linear, "packed"_a, "n_out"_a, "n_in"_a, "bits"_a);
    m.def("default_bits", default_bits, "ggml_type"_a);
    bind_choose(m);

    nb::class_<Threads>(m, "Threads").def(nb::init<int>(), "count"_a).def_prop_ro("count", &Threads::count);
    nb::class_<BoundModel>(m, "Model")
        .def(nb::init<const nb::object&, const nb::object&, const nb::object&, const std::string&>(), "mapping"_a,
             "config"_a, "tensors"_a, "isa"_a = "")
        .def_prop_ro("isa", [](const BoundModel& self) { return self.model.path().name; })
        .def_prop_ro("cache_bytes_per_token", [](const BoundModel& self) { return self.model.cache_shape().token_bytes(); })
        .def("step", step, "cache"_a, "threads"_a, strict("tokens"), strict("positions"), strict("sequences"),
             strict("tables"), strict("chosen"), strict("temperature"), strict("top_k"), strict("top_p"), strict("min_p"),
             strict("seed"), strict("choice"), strict("presence_penalty"), strict("frequency_penalty"),
             strict("repetition_penalty"), strict("count_offsets"), strict("count_ids"), strict("count_values"),
             strict("bias_offsets"), strict("bias_ids"), strict("bias_values"), strict("mask_index"), strict("masks"),
             "top_logprobs"_a = 0, strict("logits").none() = nb::none());
    nb::class_<Cache>(m, "Cache")
        .def("__init__",
             [](Cache* self, const BoundModel& model, int blocks) { new (self) Cache(model.model.cache_shape(), blocks); },
             "model"_a, "blocks"_a)
        .def_prop_ro("blocks", &Cache::blocks)
        .def_prop_ro("bytes", &Cache::bytes);
}

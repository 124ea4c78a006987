// The loops of `choose` for AVX2 (compiled with -mavx2; choose_passes.cpp decides who may call them).
#define WIDTH 8
#define PASSES choose_passes_avx2
#include "choose_passes.inc"

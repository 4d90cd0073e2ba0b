/* The most expensive operations on a CPU, compiled on the machine that runs them (compiled.py; docs/architecture.md).

   Letters as in Python: E entries, R receivers, S senders, H heads, F features per head, Q queries, T steps. Arrays are
   dense and row-major, float32 and int64. A pattern is `offsets` [R + 1] and `senders` [E]; with an `order` (or NULL),
   the values of entry e are in row order[e].

   Every number is computed by one thread, in an order that does not depend on the number of threads, or is an exact sum
   (grow_trees): the same input gives the same bits. Sums are written with fma_ and compiled without contraction, so that the remainder of a
   vectorised loop rounds like its body. */

#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define MOST_HEADS 256       /* size of arrays on the stack; the caller in nn/ops checks it */
#define WORTH_A_THREAD 20000 /* multiplications; fewer cost less than waking a thread */
#define PARTS 64             /* of a sum over all rows: independent of the number of threads */
#define PATIENCE 20000       /* looks at a number that another thread will change, before its core is offered to others */

/* ---- threads ---- */

static int team(int64_t work, int64_t threads) {
    int64_t useful = work / WORTH_A_THREAD + 1;
    return (int)(useful < threads ? useful : threads);
}

/* First row of part i of n. Parts have equal numbers of entries plus rows, or (offsets NULL) equal numbers of rows. */
static int64_t first_row(const int64_t *offsets, int64_t rows, int64_t i, int64_t n) {
    if (!offsets) return rows * i / n;
    if (i >= n) return rows;
    int64_t goal = (offsets[rows] - offsets[0] + rows) / n * i, low = 0, high = rows;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (offsets[middle] - offsets[0] + middle < goal) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Run the statement for the rows [low, high) of every thread. */
#define IN_THREADS(work, offsets, rows, ...)                                         \
    {                                                                                \
        const int members = team(work, threads);                                     \
        _Pragma("omp parallel num_threads(members)") {                               \
            const int64_t me = omp_get_thread_num(), all = omp_get_num_threads();    \
            const int64_t low = first_row(offsets, rows, me, all);                   \
            const int64_t high = first_row(offsets, rows, me + 1, all);              \
            __VA_ARGS__;                                                             \
        }                                                                            \
    }

/* Where threads wait for each other many times in a row: they stay awake, but let others have their core after a while. */
typedef struct {
    int arrived __attribute__((aligned(128))), round __attribute__((aligned(128))); /* not in one line of a cache */
} meeting_t;

INLINE void meet(meeting_t *meeting, int64_t members) {
    const int round = __atomic_load_n(&meeting->round, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&meeting->arrived, 1, __ATOMIC_ACQ_REL) == members) {
        __atomic_store_n(&meeting->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&meeting->round, round + 1, __ATOMIC_RELEASE);
        return;
    }
    for (int turns = 0; __atomic_load_n(&meeting->round, __ATOMIC_ACQUIRE) == round;)
        if (turns < PATIENCE) turns++;
        else sched_yield();
}

/* Call f with small widths as constants, so that its loops are unrolled; longer loops do not need it. */
#define WITH_WIDTH(F, f, ...)               \
    switch (F) {                            \
    case 4: f(__VA_ARGS__, 4); break;       \
    case 8: f(__VA_ARGS__, 8); break;       \
    case 16: f(__VA_ARGS__, 16); break;     \
    default: f(__VA_ARGS__, F);             \
    }

/* The same for common pairs of number of heads and width. */
#define WITH_SHAPE(H, F, f, ...)                              \
    if ((H) == 16 && (F) == 16) f(__VA_ARGS__, 16, 16);       \
    else if ((H) == 16 && (F) == 8) f(__VA_ARGS__, 16, 8);    \
    else if ((H) == 8 && (F) == 16) f(__VA_ARGS__, 8, 16);    \
    else f(__VA_ARGS__, H, F);

/* ---- numbers ---- */

INLINE float fma_(float a, float b, float c) {
#ifdef __FP_FAST_FMAF
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* e^x for x ≤ 0, as 2^n e^r with |r| ≤ ½ ln 2; 0 below 2^-125, where floats become subnormal. */
INLINE float exp_(float x) {
    const float round = 12582912.0f; /* 1.5 · 2^23: adding it rounds to an integer, found in the last bits */
    float shifted = fma_(x, 1.44269504f, round);
    float n = shifted - round;
    float r = fma_(n, 2.12194440e-4f, fma_(n, -0.693359375f, x));
    float p = 1.0f / 5040;
    p = fma_(p, r, 1.0f / 720);
    p = fma_(p, r, 1.0f / 120);
    p = fma_(p, r, 1.0f / 24);
    p = fma_(p, r, 1.0f / 6);
    p = fma_(p, r, 0.5f);
    p = fma_(p, r, 1.0f);
    p = fma_(p, r, 1.0f);
    uint32_t bits;
    memcpy(&bits, &shifted, 4);
    bits = (bits + 127) << 23;
    float power;
    memcpy(&power, &bits, 4);
    return x < -86.6f ? 0.0f : p * power;
}

INLINE float dot(const float *restrict a, const float *restrict b, const int64_t F) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t f = 0; f < F; f++) sum += a[f] * b[f];
    return sum;
}

INLINE void add_neighbours(const float *restrict in, float *restrict out, const int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = in[2 * i] + in[2 * i + 1];
}

/* a · b for every head. Constant shapes add neighbouring numbers until one per head is left, because summing within
   vectors, head by head, is slow.  [H, F] → [H] */
INLINE void dots(const float *restrict a, const float *restrict b, float *restrict out, const int64_t H,
                 const int64_t F) {
    if (!__builtin_constant_p(H) || (F != 8 && F != 16)) {
        for (int64_t h = 0; h < H; h++) out[h] = dot(a + h * F, b + h * F, F);
        return;
    }
    float whole[256], half[128], quarter[64], eighth[32];
    for (int64_t i = 0; i < H * F; i++) whole[i] = a[i] * b[i];
    add_neighbours(whole, half, H * F / 2);
    add_neighbours(half, quarter, H * F / 4);
    add_neighbours(quarter, F == 8 ? out : eighth, H * F / 8);
    if (F == 16) add_neighbours(eighth, out, H);
}

/* out += w x for every head.  w [H], x [H, F] */
INLINE void add_heads(float *restrict out, const float *restrict w, const float *restrict x, const int64_t H,
                      const int64_t F) {
    for (int64_t h = 0; h < H; h++)
        for (int64_t f = 0; f < F; f++) out[h * F + f] = fma_(w[h], x[h * F + f], out[h * F + f]);
}

/* out += w x */
INLINE void add_to(float *restrict out, float w, const float *restrict x, const int64_t F) {
    for (int64_t f = 0; f < F; f++) out[f] = fma_(w, x[f], out[f]);
}

/* Initialise a sum with a row, or with zeros. */
INLINE void begin(float *restrict out, const float *first, int64_t n) {
    if (first) memcpy(out, first, n * sizeof(float));
    else memset(out, 0, n * sizeof(float));
}

INLINE void fetch(const float *row, int64_t numbers) {
    for (int64_t i = 0; i < numbers; i += 16) __builtin_prefetch(row + i);
}

#define AHEAD 3 /* number of entries by which rows are prefetched */

/* ---- sums and products over the entries of a pattern ---- */

INLINE void sum_rows(const float *alpha, const float *x, const int64_t *offsets, const int64_t *senders,
                     const int64_t *order, const float *first, float *out, int64_t low, int64_t high, int64_t elu,
                     const int64_t H, const int64_t F) {
    const int64_t d = H * F;
    for (int64_t v = low; v < high; v++) {
        float *restrict sum = out + v * d;
        begin(sum, first ? first + v * d : NULL, d);
        for (int64_t e = offsets[v]; e < offsets[v + 1]; e++) {
            if (e + AHEAD < offsets[high]) fetch(x + senders[e + AHEAD] * d, d);
            const float *w = alpha + (order ? order[e] : e) * H, *row = x + senders[e] * d;
            add_heads(sum, w, row, H, F);
        }
        if (elu)
            for (int64_t i = 0; i < d; i++) sum[i] = sum[i] > 0 ? sum[i] : exp_(sum[i]) - 1;
    }
}

/* out_v = first_v + Σ α_e x_u over the entries e = (v ← u); then ELU.  alpha [E, H], x [S, H, F], first and out [R, H, F] */
void weighted_sum(const float *alpha, const float *x, const int64_t *offsets, const int64_t *senders,
                  const int64_t *order, const float *first, float *out, int64_t R, int64_t H, int64_t F, int64_t elu, int64_t threads) {
    IN_THREADS((offsets[R] + R) * H * F, offsets, R,
               WITH_SHAPE(H, F, sum_rows, alpha, x, offsets, senders, order, first, out, low, high, elu))
}

INLINE void dot_rows(const float *x, const float *y, const int64_t *offsets, const int64_t *senders, float *out,
                     int64_t low, int64_t high, const int64_t H, const int64_t F) {
    const int64_t d = H * F;
    for (int64_t v = low; v < high; v++)
        for (int64_t e = offsets[v]; e < offsets[v + 1]; e++) {
            if (e + AHEAD < offsets[high]) fetch(y + senders[e + AHEAD] * d, d);
            const float *a = x + v * d, *b = y + senders[e] * d;
            dots(a, b, out + e * H, H, F);
        }
}

/* out_e = x_v · y_u for every entry e = (v ← u).  x [R, H, F], y [S, H, F] → [E, H] */
void pair_dot(const float *x, const float *y, const int64_t *offsets, const int64_t *senders, float *out, int64_t R,
              int64_t H, int64_t F, int64_t threads) {
    IN_THREADS(offsets[R] * H * F, offsets, R, WITH_SHAPE(H, F, dot_rows, x, y, offsets, senders, out, low, high))
}

INLINE void head_dots_rows(const float *x, const float *a, float *out, int64_t low, int64_t high, int64_t K,
                           const int64_t H, const int64_t F) {
    for (int64_t i = low; i < high; i++)
        for (int64_t k = 0; k < K; k++) dots(x + i * H * F, a + k * H * F, out + (i * K + k) * H, H, F);
}

/* out_ik = x_i · a_k for every head.  x [A, H, F], a [K, H, F] → [A, K, H] */
void head_dots(const float *x, const float *a, float *out, int64_t A, int64_t K, int64_t H, int64_t F,
               int64_t threads) {
    IN_THREADS(A * K * H * F, NULL, A, WITH_SHAPE(H, F, head_dots_rows, x, a, out, low, high, K))
}

INLINE void head_dots_backward_rows(const float *grad, const float *x, const float *a, const float *first, float *d_x,
                                    float *d_a, int64_t low, int64_t high, int64_t K, const int64_t H, const int64_t F) {
    memset(d_a, 0, K * H * F * sizeof(float));
    for (int64_t i = low; i < high; i++) {
        begin(d_x + i * H * F, first ? first + i * H * F : NULL, H * F);
        for (int64_t k = 0; k < K; k++) {
            add_heads(d_x + i * H * F, grad + (i * K + k) * H, a + k * H * F, H, F);
            add_heads(d_a + k * H * F, grad + (i * K + k) * H, x + i * H * F, H, F);
        }
    }
}

/* Gradients of x, added to `first` [A, H, F] or NULL, and of a; `parts` [PARTS, K, H, F] is workspace. */
void head_dots_backward(const float *grad, const float *x, const float *a, const float *first, float *parts, float *d_x, float *d_a,
                        int64_t A, int64_t K, int64_t H, int64_t F, int64_t threads) {
    const int64_t size = K * H * F, pieces = A / 64 + 1 < PARTS ? A / 64 + 1 : PARTS; /* by work, not by threads */
#pragma omp parallel for schedule(static) num_threads(team(2 * A * size, threads))
    for (int64_t p = 0; p < pieces; p++) {
        const int64_t low = first_row(NULL, A, p, pieces), high = first_row(NULL, A, p + 1, pieces);
        WITH_SHAPE(H, F, head_dots_backward_rows, grad, x, a, first, d_x, parts + p * size, low, high, K)
    }
    memset(d_a, 0, size * sizeof(float));
    for (int64_t p = 0; p < pieces; p++) add_to(d_a, 1.0f, parts + p * size, size);
}

/* grad · ELU', computed from the output of ELU: 1 above 0, else out + 1.  [n] */
void elu_backward(const float *grad, const float *out, float *inner, int64_t n, int64_t threads) {
    IN_THREADS(n, NULL, n, for (int64_t i = low; i < high; i++) {
        inner[i] = out[i] > 0 ? grad[i] : grad[i] * (out[i] + 1);
    })
}

INLINE void segment_sum_rows(const float *values, const int64_t *offsets, const int64_t *order, float *out, int64_t low,
                             int64_t high, const int64_t H) {
    for (int64_t v = low; v < high; v++) {
        float *restrict sum = out + v * H;
        memset(sum, 0, H * sizeof(float));
        for (int64_t e = offsets[v]; e < offsets[v + 1]; e++) add_to(sum, 1.0f, values + (order ? order[e] : e) * H, H);
    }
}

/* out_v = Σ values_e over the entries of v.  [E, H] → [R, H] */
void segment_sum(const float *values, const int64_t *offsets, const int64_t *order, float *out, int64_t R, int64_t H,
                 int64_t threads) {
    IN_THREADS((offsets[R] + R) * H, offsets, R,
               WITH_WIDTH(H, segment_sum_rows, values, offsets, order, out, low, high))
}

/* ---- softmax ---- */

INLINE void softmax_rows(const float *logits, const int64_t *offsets, const int64_t *order, float *out, int64_t low,
                         int64_t high, const int64_t H) {
    float top[MOST_HEADS], total[MOST_HEADS];
    for (int64_t v = low; v < high; v++) {
        const int64_t first = offsets[v], stop = offsets[v + 1];
        for (int64_t h = 0; h < H; h++) top[h] = -INFINITY, total[h] = 0;
        for (int64_t e = first; e < stop; e++) {
            const float *row = logits + (order ? order[e] : e) * H;
            for (int64_t h = 0; h < H; h++) top[h] = row[h] > top[h] ? row[h] : top[h];
        }
        for (int64_t e = first; e < stop; e++) {
            const int64_t at = (order ? order[e] : e) * H;
            for (int64_t h = 0; h < H; h++) total[h] += out[at + h] = exp_(logits[at + h] - top[h]);
        }
        for (int64_t h = 0; h < H; h++) total[h] = 1 / total[h];
        for (int64_t e = first; e < stop; e++) {
            float *restrict row = out + (order ? order[e] : e) * H;
            for (int64_t h = 0; h < H; h++) row[h] *= total[h];
        }
    }
}

/* Softmax of the receivers [low, high). */
static __attribute__((noinline)) void softmax_of(const float *logits, const int64_t *offsets, const int64_t *order,
                                                 float *out, int64_t low, int64_t high, int64_t H) {
    WITH_WIDTH(H, softmax_rows, logits, offsets, order, out, low, high)
}

/* Softmax over the entries of every receiver.  [E, H] → [E, H] */
void softmax(const float *logits, const int64_t *offsets, const int64_t *order, float *out, int64_t R, int64_t H,
             int64_t threads) {
    IN_THREADS(10 * offsets[R] * H, offsets, R, softmax_of(logits, offsets, order, out, low, high, H))
}

INLINE void softmax_backward_rows(const float *alpha, const float *grad, const int64_t *offsets, const int64_t *order,
                                  float *out, int64_t low, int64_t high, const int64_t H) {
    float mean[MOST_HEADS];
    for (int64_t v = low; v < high; v++) {
        for (int64_t h = 0; h < H; h++) mean[h] = 0;
        for (int64_t e = offsets[v]; e < offsets[v + 1]; e++) {
            const int64_t at = (order ? order[e] : e) * H;
            for (int64_t h = 0; h < H; h++) mean[h] = fma_(alpha[at + h], grad[at + h], mean[h]);
        }
        for (int64_t e = offsets[v]; e < offsets[v + 1]; e++) {
            const int64_t at = (order ? order[e] : e) * H;
            for (int64_t h = 0; h < H; h++) out[at + h] = alpha[at + h] * (grad[at + h] - mean[h]);
        }
    }
}

/* α (grad − Σ α grad), where the sum runs over the entries of the same receiver.  [E, H] → [E, H] */
void softmax_backward(const float *alpha, const float *grad, const int64_t *offsets, const int64_t *order, float *out,
                      int64_t R, int64_t H, int64_t threads) {
    IN_THREADS(4 * offsets[R] * H, offsets, R,
               WITH_WIDTH(H, softmax_backward_rows, alpha, grad, offsets, order, out, low, high))
}

/* ---- logits of links ---- */

INLINE void entry_logits_rows(const float *sender, const float *receiver, const float *weights, const int64_t *offsets,
                              const int64_t *senders, float *out, int64_t low, int64_t high, int64_t sender_stride,
                              int64_t receiver_stride, float slope, const int64_t H) {
    for (int64_t v = low; v < high; v++)
        for (int64_t e = offsets[v]; e < offsets[v + 1]; e++) {
            const float *s = sender + senders[e] * sender_stride, *r = receiver + v * receiver_stride, w = weights[e];
            float *restrict logit = out + e * H;
            for (int64_t h = 0; h < H; h++) {
                float both = (s[h] + r[h]) * w;
                logit[h] = both > 0 ? both : both * slope;
            }
        }
}

/* LeakyReLU(w_e (s_u + r_v)) for every entry e = (v ← u).  s [S, H], r [R, H] with strided rows → [E, H] */
void entry_logits(const float *sender, const float *receiver, const float *weights, const int64_t *offsets,
                  const int64_t *senders, float *out, int64_t R, int64_t H, int64_t sender_stride,
                  int64_t receiver_stride, float slope, int64_t threads) {
    IN_THREADS(offsets[R] * H, offsets, R,
               WITH_WIDTH(H, entry_logits_rows, sender, receiver, weights, offsets, senders, out, low, high,
                          sender_stride, receiver_stride, slope))
}

INLINE void entry_logits_backward_rows(const float *grad, const float *logits, const float *weights, float *restrict out,
                                       int64_t low, int64_t high, float slope, const int64_t H) {
    for (int64_t e = low; e < high; e++)
        for (int64_t h = 0; h < H; h++) {
            float inner = grad[e * H + h] * weights[e];
            out[e * H + h] = logits[e * H + h] > 0 ? inner : inner * slope;
        }
}

/* Gradient of s_u + r_v for every entry. Weights are not negative, so a logit has the sign of LeakyReLU's input. */
void entry_logits_backward(const float *grad, const float *logits, const float *weights, float *out, int64_t E,
                           int64_t H, float slope, int64_t threads) {
    IN_THREADS(E * H, NULL, E,
               WITH_WIDTH(H, entry_logits_backward_rows, grad, logits, weights, out, low, high, slope))
}

/* ---- attention over histories ---- */

/* The keys (or, with at = d, the values) of entry e: those of its row, plus those of its step if there are any.  [d] */
INLINE void row_and_step(const float *kv, const float *kv_step, const int64_t *senders, const int64_t *steps, int64_t e,
                         int64_t d, int64_t at, float *restrict out) {
    const float *row = kv + senders[e] * 2 * d + at;
    if (kv_step) {
        const float *step = kv_step + steps[e] * 2 * d + at;
        for (int64_t i = 0; i < d; i++) out[i] = row[i] + step[i];
    } else {
        memcpy(out, row, d * sizeof(float));
    }
}

INLINE void history_rows(const float *q, const float *kv, const float *kv_step, const int64_t *offsets,
                         const int64_t *senders, const int64_t *steps, const float *keep, float *beta, float *out,
                         float *space, int64_t low, int64_t high, const int64_t H, const int64_t F) {
    const int64_t d = H * F;
    float kept[MOST_HEADS];
    for (int64_t i = low; i < high; i++) {
        const int64_t first = offsets[i], stop = offsets[i + 1];
        for (int64_t e = first; e < stop; e++) {
            if (e + AHEAD < offsets[high]) fetch(kv + senders[e + AHEAD] * 2 * d, 2 * d);
            row_and_step(kv, kv_step, senders, steps, e, d, 0, space);
            dots(q + i * d, space, beta + e * H, H, F);
        }
        softmax_of(beta, offsets, NULL, beta, i, i + 1, H);
        float *restrict z = out + i * d;
        memset(z, 0, d * sizeof(float));
        for (int64_t e = first; e < stop; e++) {
            row_and_step(kv, kv_step, senders, steps, e, d, d, space);
            for (int64_t h = 0; h < H; h++) kept[h] = keep ? beta[e * H + h] * keep[e * H + h] : beta[e * H + h];
            add_heads(z, kept, space, H, F);
        }
    }
}

/* z_i = Σ β_e keep_e v_e over the entries e of query i, β = softmax of q_i · k_e; k and v are sums of row and step.
   q [Q, H, F], kv [S, 2, H, F], kv_step [T, 2, H, F] or NULL, keep [E, H] or NULL → beta [E, H], out [Q, H, F] */
void history_attention(const float *q, const float *kv, const float *kv_step, const int64_t *offsets,
                       const int64_t *senders, const int64_t *steps, const float *keep, float *beta, float *out,
                       int64_t Q, int64_t H, int64_t F, int64_t threads) {
    IN_THREADS(offsets[Q] * 2 * H * F, offsets, Q, {
        float *space = malloc(H * F * sizeof(float));
        WITH_SHAPE(H, F, history_rows, q, kv, kv_step, offsets, senders, steps, keep, beta, out, space, low, high)
        free(space);
    })
}

INLINE void history_backward_rows(const float *grad, const float *z, const float *q, const float *kv,
                                  const float *kv_step, const int64_t *offsets, const int64_t *senders,
                                  const int64_t *steps, const float *keep, const float *beta, float *d_q,
                                  float *weights, float *d_step, float *space, int64_t low, int64_t high,
                                  const int64_t H, const int64_t F) {
    const int64_t d = H * F;
    float mean[MOST_HEADS], d_beta[MOST_HEADS];
    for (int64_t i = low; i < high; i++) {
        const int64_t first = offsets[i], stop = offsets[i + 1];
        const float *dz = grad + i * d, several = stop - first > 1; /* a single entry has β = 1, whatever its logit */
        memset(d_q + i * d, 0, d * sizeof(float));
        dots(dz, z + i * d, mean, H, F); /* Σ β dβ = dz · z */
        for (int64_t e = first; e < stop; e++) {
            if (e + AHEAD < offsets[high]) fetch(kv + senders[e + AHEAD] * 2 * d, 2 * d);
            float *restrict to_logit = weights + e * 2 * H, *restrict kept = to_logit + H;
            row_and_step(kv, kv_step, senders, steps, e, d, d, space);
            dots(dz, space, d_beta, H, F);
            for (int64_t h = 0; h < H; h++) kept[h] = keep ? beta[e * H + h] * keep[e * H + h] : beta[e * H + h];
            for (int64_t h = 0; h < H; h++) to_logit[h] = several * (kept[h] * d_beta[h] - beta[e * H + h] * mean[h]);
            row_and_step(kv, kv_step, senders, steps, e, d, 0, space);
            add_heads(d_q + i * d, to_logit, space, H, F);
            if (d_step) {
                add_heads(d_step + steps[e] * 2 * d, to_logit, q + i * d, H, F);
                add_heads(d_step + steps[e] * 2 * d + d, kept, dz, H, F);
            }
        }
    }
}

INLINE void history_sum_rows(const float *weights, const float *q, const float *grad, const int64_t *offsets,
                             const int64_t *receivers, const int64_t *order, float *out, int64_t low, int64_t high,
                             const int64_t H, const int64_t F) {
    const int64_t d = H * F;
    for (int64_t u = low; u < high; u++) {
        float *restrict sum = out + u * 2 * d;
        memset(sum, 0, 2 * d * sizeof(float));
        for (int64_t e = offsets[u]; e < offsets[u + 1]; e++) {
            if (e + AHEAD < offsets[high]) {
                fetch(q + receivers[e + AHEAD] * d, d);
                fetch(grad + receivers[e + AHEAD] * d, d);
            }
            const float *w = weights + order[e] * 2 * H;
            add_heads(sum, w, q + receivers[e] * d, H, F);
            add_heads(sum + d, w + H, grad + receivers[e] * d, H, F);
        }
    }
}

/* Gradients of q, kv and kv_step (or NULL). `parts` [PARTS, T, 2, H, F] and `weights` [E, 2 H] are workspace; the
   transposed pattern is `by_offsets` [S + 1], `by_receivers` [E], `by_order` [E]. */
void history_attention_backward(const float *grad, const float *z, const float *q, const float *kv,
                                const float *kv_step, const int64_t *offsets, const int64_t *senders,
                                const int64_t *steps, const float *keep, const float *beta, const int64_t *by_offsets,
                                const int64_t *by_receivers, const int64_t *by_order, float *weights, float *parts,
                                float *d_q, float *d_kv, float *d_kv_step, int64_t Q, int64_t S, int64_t T, int64_t H,
                                int64_t F, int64_t threads) {
    const int64_t E = offsets[Q], d = H * F, size = T * 2 * d;
    const int64_t pieces = E / 256 + 1 < PARTS ? E / 256 + 1 : PARTS; /* by work, not by threads */
#pragma omp parallel num_threads(team(E * 4 * d, threads))
    {
        float *space = malloc(d * sizeof(float));
#pragma omp for schedule(static)
        for (int64_t p = 0; p < pieces; p++) {
            const int64_t low = first_row(offsets, Q, p, pieces), high = first_row(offsets, Q, p + 1, pieces);
            float *mine = kv_step ? parts + p * size : NULL;
            if (mine) memset(mine, 0, size * sizeof(float));
            WITH_SHAPE(H, F, history_backward_rows, grad, z, q, kv, kv_step, offsets, senders, steps, keep, beta, d_q,
                       weights, mine, space, low, high)
        }
        free(space);
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads();
        const int64_t low = first_row(by_offsets, S, me, all), high = first_row(by_offsets, S, me + 1, all);
        WITH_SHAPE(H, F, history_sum_rows, weights, q, grad, by_offsets, by_receivers, by_order, d_kv, low, high)
    }
    if (!kv_step) return;
    memset(d_kv_step, 0, size * sizeof(float));
    for (int64_t p = 0; p < pieces; p++) add_to(d_kv_step, 1.0f, parts + p * size, size);
}

/* ---- attention of few queries: these are projected back to the width of the rows, and no row is projected ---- */

/* out += Σ_j w_j x_j, in order of j.  w [n], x: n pointers to [D] → [D] */
INLINE void add_rows_to(float *restrict out, const float *w, const float *const *x, int64_t n, int64_t D) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) { /* four at once, which read and write `out` only once */
        const float *restrict a = x[j], *restrict b = x[j + 1], *restrict c = x[j + 2], *restrict d = x[j + 3];
        const float wa = w[j], wb = w[j + 1], wc = w[j + 2], wd = w[j + 3];
        for (int64_t i = 0; i < D; i++) out[i] = fma_(wd, d[i], fma_(wc, c[i], fma_(wb, b[i], fma_(wa, a[i], out[i]))));
    }
    for (; j < n; j++) add_to(out, w[j], x[j], D);
}

/* out_j = a · x_j for rows that follow each other.  a [D], x [n, D] → [n] */
INLINE void dots_with(const float *restrict a, const float *restrict x, float *restrict out, int64_t n, int64_t D) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) { /* four at once, which read a only once */
        const float *restrict x0 = x + j * D, *restrict x1 = x0 + D, *restrict x2 = x1 + D, *restrict x3 = x2 + D;
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (int64_t i = 0; i < D; i++) {
            s0 += a[i] * x0[i];
            s1 += a[i] * x1[i];
            s2 += a[i] * x2[i];
            s3 += a[i] * x3[i];
        }
        out[j] = s0, out[j + 1] = s1, out[j + 2] = s2, out[j + 3] = s3;
    }
    for (; j < n; j++) out[j] = dot(a, x + j * D, D);
}

/* Working space of a query with at most n entries: weights and pointers of those, and numbers per head. */
typedef struct {
    float *asked, *sum, *d_asked, *d_sum; /* [H, D] */
    float *kept, *d_logits, *column;      /* [n, H], [n, H], [max(n, 2 H, F)] */
    const float **rows;                   /* [max(n, 2 H, F)] */
} query_space_t;

static query_space_t query_space(int64_t n, int64_t D, int64_t H, int64_t F) {
    const int64_t most = n > 2 * H ? (n > F ? n : F) : (2 * H > F ? 2 * H : F);
    float *numbers = malloc((4 * D * H + 2 * n * H + most) * sizeof(float));
    query_space_t space = {numbers, numbers + D * H, numbers + 2 * D * H, numbers + 3 * D * H, numbers + 4 * D * H};
    space.d_logits = space.kept + n * H;
    space.column = space.d_logits + n * H;
    space.rows = malloc(most * sizeof(float *));
    return space;
}

static void free_space(query_space_t space) {
    free(space.asked);
    free(space.rows);
}

static int64_t longest(const int64_t *offsets, int64_t rows) {
    int64_t most = 0;
    for (int64_t v = 0; v < rows; v++)
        if (offsets[v + 1] - offsets[v] > most) most = offsets[v + 1] - offsets[v];
    return most;
}

/* out_h = Σ_f q_hf weight_hf.  q [H, F], weight [H, F, D] → [H, D] */
INLINE void project_back(const float *q, const float *weight, float *out, const float **rows, int64_t D, int64_t H,
                         int64_t F) {
    memset(out, 0, D * H * sizeof(float));
    for (int64_t h = 0; h < H; h++) {
        for (int64_t f = 0; f < F; f++) rows[f] = weight + (h * F + f) * D;
        add_rows_to(out + h * D, q + h * F, rows, F, D);
    }
}

/* out_h = Σ_e weight_eh x_u over n entries e from u.  x [S, D], senders [n], weights [n, H] → [H, D] */
INLINE void sum_of_rows(const float *x, const int64_t *senders, const float *weights, float *out, query_space_t space,
                        int64_t n, int64_t D, int64_t H) {
    memset(out, 0, D * H * sizeof(float));
    for (int64_t e = 0; e < n; e++) space.rows[e] = x + senders[e] * D;
    for (int64_t h = 0; h < H; h++) {
        for (int64_t e = 0; e < n; e++) space.column[e] = weights[e * H + h];
        add_rows_to(out + h * D, space.column, space.rows, n, D);
    }
}

/* Weights after dropout.  [n] */
INLINE void keep_weights(const float *weights, const float *keep, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = keep ? weights[i] * keep[i] : weights[i];
}

static void few_queries_rows(const float *q, const float *x, const float *key, const float *value, const float *bias,
                             const int64_t *kind, const int64_t *offsets, const int64_t *senders, const float *keep,
                             float *beta, float *out, query_space_t space, int64_t low, int64_t high, int64_t D, int64_t H,
                             int64_t F) {
    for (int64_t v = low; v < high; v++) {
        const int64_t first = offsets[v], n = offsets[v + 1] - first;
        for (int64_t e = first; e < first + n; e++) fetch(x + senders[e] * D, D);
        project_back(q + v * H * F, key, space.asked, space.rows, D, H, F);
        for (int64_t e = first; e < first + n; e++) {
            dots_with(x + senders[e] * D, space.asked, beta + e * H, H, D);
            add_to(beta + e * H, 1.0f, bias + kind[e] * H, H);
        }
        softmax_of(beta, offsets, NULL, beta, v, v + 1, H);
        keep_weights(beta + first * H, keep ? keep + first * H : NULL, space.kept, n * H);
        sum_of_rows(x, senders + first, space.kept, space.sum, space, n, D, H);
        for (int64_t h = 0; h < H; h++) dots_with(space.sum + h * D, value + h * F * D, out + (v * H + h) * F, F, D);
    }
}

/* z_v = Σ β_e keep_e (x_u W_v) over the entries e = (v ← u), β = softmax of q_v · (x_u W_k) + bias of the kind of e.
   q [Q, H, F], x [S, D], key and value [H, F, D], bias [K, H], kind [E], keep [E, H] or NULL → beta [E, H],
   out [Q, H, F] */
void few_queries(const float *q, const float *x, const float *key, const float *value, const float *bias,
                 const int64_t *kind, const int64_t *offsets, const int64_t *senders, const float *keep, float *beta,
                 float *out, int64_t Q, int64_t D, int64_t H, int64_t F, int64_t threads) {
    const int64_t most = longest(offsets, Q);
    IN_THREADS(offsets[Q] * D * H + Q * D * H * F, offsets, Q, {
        const query_space_t space = query_space(most, D, H, F);
        few_queries_rows(q, x, key, value, bias, kind, offsets, senders, keep, beta, out, space, low, high, D, H, F);
        free_space(space);
    })
}

/* Gradients of the queries [low, high): d_q, and d_x of every entry; those of key, value and bias are added to. */
static void few_queries_backward_rows(const float *grad, const float *q, const float *x, const float *key,
                                      const float *value, const int64_t *kind, const int64_t *offsets,
                                      const int64_t *senders, const float *keep, const float *beta, float *d_q, float *d_x,
                                      float *d_key, float *d_value, float *d_bias, query_space_t space, int64_t low,
                                      int64_t high, int64_t D, int64_t H, int64_t F) {
    float mean[MOST_HEADS];
    for (int64_t v = low; v < high; v++) {
        const int64_t first = offsets[v], n = offsets[v + 1] - first, *from = senders + first;
        const float *dz = grad + v * H * F, *own = q + v * H * F, *weights = beta + first * H;
        const float *kept = keep ? keep + first * H : NULL;
        float *d_logits = space.d_logits; /* first the gradients of β */
        for (int64_t e = 0; e < n; e++) fetch(x + from[e] * D, D);
        project_back(own, key, space.asked, space.rows, D, H, F);
        project_back(dz, value, space.d_sum, space.rows, D, H, F);
        keep_weights(weights, kept, space.kept, n * H);
        sum_of_rows(x, from, space.kept, space.sum, space, n, D, H);
        memset(mean, 0, H * sizeof(float));
        for (int64_t e = 0; e < n; e++) {
            dots_with(x + from[e] * D, space.d_sum, d_logits + e * H, H, D);
            keep_weights(d_logits + e * H, kept ? kept + e * H : NULL, d_logits + e * H, H);
            for (int64_t h = 0; h < H; h++) mean[h] = fma_(weights[e * H + h], d_logits[e * H + h], mean[h]);
        }
        for (int64_t e = 0; e < n; e++) {
            for (int64_t h = 0; h < H; h++) d_logits[e * H + h] = weights[e * H + h] * (d_logits[e * H + h] - mean[h]);
            add_to(d_bias + kind[first + e] * H, 1.0f, d_logits + e * H, H);
        }
        sum_of_rows(x, from, d_logits, space.d_asked, space, n, D, H);
        for (int64_t h = 0; h < H; h++) {
            space.rows[h] = space.d_sum + h * D;
            space.rows[H + h] = space.asked + h * D;
        }
        for (int64_t e = 0; e < n; e++) {
            memcpy(space.column, space.kept + e * H, H * sizeof(float));
            memcpy(space.column + H, d_logits + e * H, H * sizeof(float));
            memset(d_x + (first + e) * D, 0, D * sizeof(float));
            add_rows_to(d_x + (first + e) * D, space.column, space.rows, 2 * H, D);
        }
        for (int64_t h = 0; h < H; h++) {
            dots_with(space.d_asked + h * D, key + h * F * D, d_q + (v * H + h) * F, F, D);
            for (int64_t f = h * F; f < (h + 1) * F; f++) {
                add_to(d_key + f * D, own[f], space.d_asked + h * D, D);
                add_to(d_value + f * D, dz[f], space.sum + h * D, D);
            }
        }
    }
}

/* Gradients of q, of the row of every entry [E, D], and of key, value and bias, which follow each other in `d_weights`
   [2 H F D + K H]; `parts` [PARTS, 2 H F D + K H] is workspace. */
void few_queries_backward(const float *grad, const float *q, const float *x, const float *key, const float *value,
                          const int64_t *kind, const int64_t *offsets, const int64_t *senders, const float *keep,
                          const float *beta, float *parts, float *d_q, float *d_x, float *d_weights, int64_t Q, int64_t D,
                          int64_t K, int64_t H, int64_t F, int64_t threads) {
    const int64_t E = offsets[Q], whole = H * F * D, size = 2 * whole + K * H, most = longest(offsets, Q);
    const int64_t pieces = E / 256 + 1 < PARTS ? E / 256 + 1 : PARTS; /* by work, not by threads */
#pragma omp parallel for schedule(static) num_threads(team(E * 4 * D * H, threads))
    for (int64_t p = 0; p < pieces; p++) {
        const int64_t low = first_row(offsets, Q, p, pieces), high = first_row(offsets, Q, p + 1, pieces);
        const query_space_t space = query_space(most, D, H, F);
        float *mine = parts + p * size;
        memset(mine, 0, size * sizeof(float));
        few_queries_backward_rows(grad, q, x, key, value, kind, offsets, senders, keep, beta, d_q, d_x, mine, mine + whole,
                                  mine + 2 * whole, space, low, high, D, H, F);
        free_space(space);
    }
    memset(d_weights, 0, size * sizeof(float));
    for (int64_t p = 0; p < pieces; p++) add_to(d_weights, 1.0f, parts + p * size, size);
}

/* ---- dropout ---- */

/* 32 random bits: a hash of a position and a 64-bit key, whose upper half is added in the third line. */
INLINE uint32_t random_bits(uint32_t place, uint32_t key, uint32_t other_key) {
    uint32_t bits = place * 0x9E3779B1u + key;
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6Bu;
    bits = ((bits ^ (bits >> 13)) + other_key) * 0xC2B2AE35u;
    bits = (bits ^ (bits >> 16)) * 0x27D4EB2Fu;
    return bits ^ (bits >> 15);
}

/* Drop within a block of 32 values: 16 use the lower halves of the random bits, then 16 the upper halves. */
INLINE void drop_block(const float *restrict x, float *restrict out, int64_t block, uint32_t key, uint32_t other_key,
                       uint32_t dropped, float scale) {
    uint32_t bits[16];
    for (int i = 0; i < 16; i++) bits[i] = random_bits((uint32_t)(block * 16 + i), key, other_key);
    for (int i = 0; i < 16; i++) out[i] = (bits[i] & 0xFFFF) >= dropped ? x[i] * scale : 0;
    for (int i = 0; i < 16; i++) out[16 + i] = (bits[i] >> 16) >= dropped ? x[16 + i] * scale : 0;
}

/* x · scale, or 0 with probability dropped / 2^16, by key and position.  [n]; nn/dropout.py does the same in NumPy */
void dropout(const float *x, float *out, int64_t n, int64_t key, int64_t dropped, float scale, int64_t threads) {
    const uint32_t low_key = (uint32_t)key, high_key = (uint32_t)((uint64_t)key >> 32);
    const int64_t blocks = (n + 31) / 32;
    IN_THREADS(2 * n, NULL, blocks, {
        for (int64_t b = low; b < high; b++) {
            if (b * 32 + 32 <= n) {
                drop_block(x + b * 32, out + b * 32, b, low_key, high_key, (uint32_t)dropped, scale);
            } else {
                float padded[32] = {0};
                memcpy(padded, x + b * 32, (n - b * 32) * sizeof(float));
                float result[32];
                drop_block(padded, result, b, low_key, high_key, (uint32_t)dropped, scale);
                memcpy(out + b * 32, result, (n - b * 32) * sizeof(float));
            }
        }
    })
}

/* ---- patterns and sampling ---- */

/* Transpose a pattern: its entries sorted by sender, then by receiver.
   senders, receivers [E] → offsets [S + 1], order, sorted, others [E] */
void transpose(const int64_t *senders, const int64_t *receivers, int64_t *offsets, int64_t *order, int64_t *sorted,
               int64_t *others, int64_t E, int64_t S, int64_t threads) {
    (void)threads;
    memset(offsets, 0, (S + 1) * sizeof(int64_t));
    for (int64_t e = 0; e < E; e++) offsets[senders[e] + 1]++;
    for (int64_t u = 0; u < S; u++) offsets[u + 1] += offsets[u];
    for (int64_t e = 0; e < E; e++) {
        const int64_t at = offsets[senders[e]]++;
        order[at] = e;
        sorted[at] = senders[e];
        others[at] = receivers[e];
    }
    memmove(offsets + 1, offsets, S * sizeof(int64_t)); /* every offset has advanced to the next one */
    offsets[0] = 0;
}

/* Last index in [low, high) whose number is at most x. Numbers are sorted, and numbers[low] is at most x. */
static int64_t last_at_most(const int64_t *numbers, int64_t low, int64_t high, int64_t x) {
    for (int64_t n = high - low; n > 1;) {
        const int64_t half = n / 2;
        low += (numbers[low + half] <= x) * half; /* no branch: half would be mispredicted */
        n -= half;
    }
    return low;
}

/* The rank-th node, other than the row itself, in the window of a position. */
static int64_t context(const int32_t *walks, int64_t length, int64_t window, int64_t position, int64_t row,
                       int64_t rank) {
    const int64_t inside = (int32_t)position % (int32_t)length;
    const int64_t stop = inside + window < length ? position + window : position - inside + length - 1;
    for (int64_t at = inside > window ? position - window : position - inside; at <= stop; at++)
        if (walks[at] != row && rank-- == 0) return walks[at];
    return -1;
}

/* Contexts of each row, chosen by numbers in [0, 1) as in sampling/walks.py; −1 for a row without pairs. Occurrences of
   row r that have a pair lie in [starts[r], starts[r + 1]).
   starts [R + 1], rows [B], uniform [B, count] → out [B, count] */
void draw_contexts(const int32_t *walks, const int32_t *order, const int64_t *first_of_occurrence,
                   const int64_t *first_of_row, const int64_t *starts, const int64_t *rows, const double *uniform,
                   int64_t *out, int64_t length, int64_t window, int64_t B, int64_t count, int64_t threads) {
    IN_THREADS(B * count * 50, NULL, B, for (int64_t b = low; b < high; b++) {
        const int64_t row = rows[b], first = first_of_row[row], pairs = first_of_row[row + 1] - first;
        int64_t *restrict found = out + b * count;
        for (int64_t i = 0; i < count; i++) {
            const int64_t drawn = (int64_t)(uniform[b * count + i] * (double)pairs);
            found[i] = first + (drawn < pairs ? drawn : pairs - 1);
        }
        for (int64_t i = 0; pairs && i < count; i++) {
            const int64_t at = last_at_most(first_of_occurrence, starts[row], starts[row + 1], found[i]);
            found[i] = context(walks, length, window, order[at], row, found[i] - first_of_occurrence[at]);
        }
        for (int64_t i = 0; !pairs && i < count; i++) found[i] = -1;
    })
}

/* ---- sums over links, and rows of both ends ---- */

/* Add values to the total in their order: one thread, because callers have several totals.  values, at [n] */
#define ADD_AT(name, type)                                                                                  \
    void name(const type *values, const int64_t *at, type *total, int64_t n, int64_t threads) {             \
        (void)threads;                                                                                      \
        for (int64_t i = 0; i < n; i++) total[at[i]] += values[i];                                          \
    }
ADD_AT(add_at_float64, double)
ADD_AT(add_at_float32, float)
ADD_AT(add_at_int64, int64_t)
ADD_AT(add_at_int32, int32_t)

/* Links u < v, given as sorted keys u · N + v, as rows of both ends: neighbours in rising order, and the link of each
   entry. A thread reads all keys, and writes the rows of some nodes: rows of v are in no order, so that is what takes
   long.  keys [E] → offsets [N + 1], neighbours, links [2E] */
#define BOTH_ENDS(name, type)                                                                               \
    void name(const int64_t *keys, int64_t *offsets, type *neighbours, type *links, int64_t E, int64_t N,   \
              int64_t threads) {                                                                            \
        int64_t *smaller = calloc(2 * N + 1, sizeof(int64_t)), *larger = smaller + N;                       \
        IN_THREADS(E, NULL, N, for (int64_t e = 0, u = 0; e < E; e++) {                                     \
            while (keys[e] >= (u + 1) * N) u++;                                                             \
            const int64_t v = keys[e] - u * N;                                                              \
            if (u >= low && u < high) larger[u]++;                                                          \
            if (v >= low && v < high) smaller[v]++;                                                         \
        })                                                                                                  \
        offsets[0] = 0;                                                                                     \
        for (int64_t i = 0; i < N; i++) { /* smaller neighbours of a node come first */                     \
            const int64_t first = offsets[i], middle = first + smaller[i];                                  \
            offsets[i + 1] = middle + larger[i];                                                            \
            smaller[i] = first;                                                                             \
            larger[i] = middle;                                                                             \
        }                                                                                                   \
        IN_THREADS(E, offsets, N, for (int64_t e = 0, u = 0; e < E; e++) {                                  \
            while (keys[e] >= (u + 1) * N) u++;                                                             \
            const int64_t v = keys[e] - u * N;                                                              \
            if (u >= low && u < high) {                                                                     \
                neighbours[larger[u]] = (type)v;                                                            \
                links[larger[u]++] = (type)e;                                                               \
            }                                                                                               \
            if (v >= low && v < high) {                                                                     \
                neighbours[smaller[v]] = (type)u;                                                           \
                links[smaller[v]++] = (type)e;                                                              \
            }                                                                                               \
        })                                                                                                  \
        free(smaller);                                                                                      \
    }
BOTH_ENDS(both_ends, int64_t)
BOTH_ENDS(both_ends_narrow, int32_t)

/* ---- paths ---- */

/* Σ_zy b_uz b_zy a_vy over all three-step paths from u to v, for pairs sorted by u: the partners of u_i are
   v[starts[i]] … v[starts[i + 1] − 1]. b and a are W weightings of the same entries of N rows.
   offsets [N + 1], neighbours [E], b, a [E, W] → out [P, W] */
INLINE void three_steps_from(const int64_t *offsets, const int64_t *neighbours, const double *b, const double *a,
                             const int64_t *u, const int64_t *starts, const int64_t *v, double *out, int64_t low,
                             int64_t high, int64_t N, const int64_t W) {
    double *paths = calloc(N * W, sizeof(double));
    for (int64_t i = low; i < high; i++) {
        int64_t steps = 0;
        for (int64_t e = offsets[u[i]]; e < offsets[u[i] + 1]; e++) {
            steps += offsets[neighbours[e] + 1] - offsets[neighbours[e]];
            for (int64_t f = offsets[neighbours[e]]; f < offsets[neighbours[e] + 1]; f++)
                for (int64_t w = 0; w < W; w++) paths[neighbours[f] * W + w] += b[e * W + w] * b[f * W + w];
        }
        for (int64_t p = starts[i]; p < starts[i + 1]; p++) {
            double sums[W];
            for (int64_t w = 0; w < W; w++) sums[w] = 0;
            for (int64_t e = offsets[v[p]]; e < offsets[v[p] + 1]; e++)
                for (int64_t w = 0; w < W; w++) sums[w] += paths[neighbours[e] * W + w] * a[e * W + w];
            memcpy(out + p * W, sums, sizeof sums);
        }
        if (steps > N / 8) memset(paths, 0, N * W * sizeof(double));
        else /* far fewer nodes have a path than there are nodes */
            for (int64_t e = offsets[u[i]]; e < offsets[u[i] + 1]; e++)
                for (int64_t f = offsets[neighbours[e]]; f < offsets[neighbours[e] + 1]; f++)
                    for (int64_t w = 0; w < W; w++) paths[neighbours[f] * W + w] = 0;
    }
    free(paths);
}

void three_steps(const int64_t *offsets, const int64_t *neighbours, const double *b, const double *a, const int64_t *u,
                 const int64_t *starts, const int64_t *v, double *out, int64_t U, int64_t N, int64_t W,
                 int64_t threads) {
    IN_THREADS(offsets[N] * U, starts, U, {
        if (W == 1) three_steps_from(offsets, neighbours, b, a, u, starts, v, out, low, high, N, 1);
        else if (W == 3) three_steps_from(offsets, neighbours, b, a, u, starts, v, out, low, high, N, 3);
        else three_steps_from(offsets, neighbours, b, a, u, starts, v, out, low, high, N, W);
    })
}

/* ---- ranks ---- */

#define RANKED_ROWS 256 /* whose results stay in the cache until all columns are ranked */
#define LOOKUPS 8 /* at once, so that one need not wait for the memory of another */

/* How many of n sorted numbers are below each x, and how many are not above it; NaN counts as largest. */
INLINE void numbers_below(const float *ordered, int64_t n, const float *x, int64_t *below, int64_t *up_to,
                          const int64_t count) {
    for (int64_t i = 0; i < count; i++) below[i] = up_to[i] = 0;
    for (; n > 1; n -= n / 2)
        for (int64_t i = 0; i < count; i++) {
            int64_t more = !(ordered[below[i] + n / 2 - 1] >= x[i]), still = !(ordered[up_to[i] + n / 2 - 1] > x[i]);
            __asm__("" : "+r"(more), "+r"(still)); /* no branch, which would be mispredicted, and no slow gathering */
            below[i] += -more & (n / 2);
            up_to[i] += -still & (n / 2);
        }
    for (int64_t i = 0; i < count; i++) {
        below[i] += !(ordered[below[i]] >= x[i]);
        up_to[i] += !(ordered[up_to[i]] > x[i]);
    }
}

/* Fraction of a column's sorted numbers that are below each of its values, counting half of the equal ones.
   values [F, B], ordered [F, n], n > 0 → out [B, F] */
void standings(const float *values, const float *ordered, double *out, int64_t F, int64_t B, int64_t n,
               int64_t threads) {
    IN_THREADS(20 * F * B, NULL, B, for (int64_t first = low; first < high; first += RANKED_ROWS) {
        const int64_t stop = first + RANKED_ROWS < high ? first + RANKED_ROWS : high;
        int64_t below[LOOKUPS], up_to[LOOKUPS];
        for (int64_t f = 0; f < F; f++)
            for (int64_t b = first; b < stop; b += LOOKUPS) {
                const int64_t count = stop - b < LOOKUPS ? stop - b : LOOKUPS;
                const float *x = values + f * B + b, *here = ordered + f * n;
                if (count == LOOKUPS) numbers_below(here, n, x, below, up_to, LOOKUPS);
                else numbers_below(here, n, x, below, up_to, count);
                for (int64_t i = 0; i < count; i++) out[(b + i) * F + f] = (double)(below[i] + up_to[i]) / (double)(2 * n);
            }
    })
}

/* ---- trees ---- */

#define FEATURES_AT_ONCE 8
#define ROWS_AT_ONCE 64 /* rows whose features stay in the cache while all trees or features read them */

/* Edges between the distinct values of each ordered column: half of them at equal ranks, half at equal numbers of distinct
   values. A column has fewer than B; the other places of `edges` are not changed. Overwrites `ordered`.
   ordered [F, n] → edges [F, B] */
void bin_edges(double *ordered, double *edges, int64_t F, int64_t n, int64_t B, int64_t threads) {
    IN_THREADS(n * F, NULL, F, for (int64_t f = low; f < high; f++) {
        double *values = ordered + f * n, *out = edges + f * B;
        const int64_t half = B / 2;
        int64_t at_ranks[half], m = 0, next = 0; /* distinct values at or before equal ranks, of m */
        for (int64_t i = 0; i < n; i++) {
            if (i == 0 || values[i] > values[m - 1]) values[m++] = values[i];
            for (; next + 1 < half && (next + 1) * n / half == i; next++) at_ranks[next] = m - 1;
        }
        int64_t last = -1, r = 0, d = 0;
        while (r < next || d < half) {
            const int64_t distinct = d < half ? (2 * d + 1) * m / B : m;
            const int64_t place = r < next && at_ranks[r] <= distinct ? at_ranks[r++] : (d++, distinct);
            if (place == last || place >= m - 1) continue;
            *out++ = (values[place] + values[place + 1]) / 2;
            last = place;
        }
    })
}

/* How many of a feature's B sorted edges, B a power of two, are below each value.  x [n, F], edges [F, B] → out [F, n] */
void bin_rows(const double *x, const double *edges, uint8_t *out, int64_t n, int64_t F, int64_t B, int64_t threads) {
    IN_THREADS(8 * n * F, NULL, n, for (int64_t first = low; first < high; first += ROWS_AT_ONCE) {
        const int64_t stop = first + ROWS_AT_ONCE < high ? first + ROWS_AT_ONCE : high;
        for (int64_t f = 0; f < F; f++)
            for (int64_t i = first; i < stop; i++) {
                const double value = x[i * F + f], *base = edges + f * B;
                for (int64_t half = B / 2; half; half /= 2) base += (base[half - 1] < value) * half;
                out[f * n + i] = (uint8_t)(base - edges - f * B + (*base < value));
            }
    })
}

/* Slope and curvature of the loss of row i at the scores `raw`, in multiples of 1 / fine. With label 0 or 1 it has those of
   the logistic loss; 2 is no label. Every pair of rows adds `weight` · log(1 + exp(below − above)). The entries of a row are
   the rows that should have a smaller sum, then n + those that should have a larger one.
   raw, label [n], offsets [n + 1], entries [2P] → out [n, 2] */
INLINE void row_slopes(const double *raw, const uint8_t *label, const int64_t *offsets, const int64_t *entries,
                       double *out, int64_t n, int64_t i, double weight, double fine) {
    double slope = 0, bend = 0;
    if (label[i] < 2) {
        const double chance = 1 / (1 + exp(-raw[i]));
        slope = chance - label[i];
        bend = chance * (1 - chance);
    }
    for (int64_t e = offsets[i]; e < offsets[i + 1]; e++) {
        const int above = entries[e] < n; /* should this row have the larger sum? */
        const double apart = raw[i] - raw[above ? entries[e] : entries[e] - n];
        const double wrong = 1 / (1 + exp(above ? apart : -apart)), push = weight * wrong;
        slope += above ? -push : push;
        bend += push * (1 - wrong);
    }
    out[2 * i] = rint(slope * fine) / fine;
    out[2 * i + 1] = rint(bend * fine) / fine;
}

typedef double both_t __attribute__((vector_size(16), aligned(8))); /* slope and curvature, added at once */
#define LINE 8
typedef double line_t __attribute__((vector_size(8 * LINE), aligned(8))); /* so are these sums of several bins */

/* Add both values of some rows to the sums of their pair of groups and bin, for `width` features at once, so that the sums of
   one need not wait for those of another.
   bins [F, n], features [width], group [n], both [n], rows [count] → out [pairs of groups, K, B] */
INLINE void add_rows(const uint8_t *bins, const int64_t *features, const int32_t *group, const both_t *both,
                     const int32_t *rows, both_t *out, int64_t n, int64_t count, int64_t K, int64_t B, const int width) {
    const uint8_t *bin[FEATURES_AT_ONCE];
    for (int k = 0; k < width; k++) bin[k] = bins + features[k] * n;
    for (int64_t j = 0; j < count; j++) {
        const int32_t i = rows[j];
        both_t *here = out + group[i] / 2 * K * B;
        const both_t value = both[i];
#pragma GCC unroll 8
        for (int k = 0; k < width; k++) here[k * B + bin[k][i]] += value;
    }
}

/* Add both values of some rows to the sums of their pair of groups.
   bins [F, n], features [K], group [n], both [n, 2], rows [count] → out [pairs of groups, K, B, 2] */
static void add_bin_sums(const uint8_t *bins, const int64_t *features, const int32_t *group, const double *both,
                         const int32_t *rows, double *out, int64_t n, int64_t count, int64_t K, int64_t B) {
#define ADD(width) add_rows(bins, features + k, group, (const both_t *)both, rows, at, n, count, K, B, width)
    for (int64_t k = 0; k < K; k += FEATURES_AT_ONCE) {
        both_t *at = (both_t *)out + k * B;
        switch (K - k) {
        case 1: ADD(1); break;
        case 2: ADD(2); break;
        case 3: ADD(3); break;
        case 4: ADD(4); break;
        case 5: ADD(5); break;
        case 6: ADD(6); break;
        case 7: ADD(7); break;
        default: ADD(FEATURES_AT_ONCE);
        }
    }
#undef ADD
}

/* The feature and the bin after which to split a group, with the largest gain of (Σg)² / (Σh + l2) over both sides.
   Neither side may have Σh < least; without a gain above tiny it is the last bin. Of gains that differ by less than the
   factor `same`, the first counts.  sums [K, B, 2] → which, cut, sides [2, 2], the sums of both sides */
static void best_split(const double *sums, const int64_t *features, int64_t *which, int64_t *cut, double *sides, int64_t K,
                       int64_t B, double l2, double least, double tiny, double same) {
    double best = tiny;
    *which = features[0];
    *cut = B - 1;
    memset(sides, 0, sizeof(double) * 4);
    for (int64_t k = 0; k < K; k++) {
        const double *here = sums + k * B * 2;
        double g = 0, h = 0, all_g = 0, all_h = 0;
        for (int64_t b = 0; b < B; b++) {
            all_g += here[2 * b];
            all_h += here[2 * b + 1];
        }
        if (k == 0) sides[0] = all_g, sides[1] = all_h; /* all on the left, until a split is found */
        if (all_h < least) return;
        const double before = all_g * all_g / (all_h + l2);
        for (int64_t b = 0; b < B; b++) {
            g += here[2 * b];
            h += here[2 * b + 1];
            const double others = all_g - g, rest = all_h - h;
            if (h < least || rest < least) continue;
            const double gain = g * g / (h + l2) + others * others / (rest + l2) - before;
            if (gain > best * same) {
                best = gain;
                *which = features[k];
                *cut = b;
                sides[0] = g, sides[1] = h, sides[2] = others, sides[3] = rest;
            }
        }
    }
}

/* Grow R trees one after the other, each level by level. The groups of a tree choose among the features of that tree, by slope
   and curvature g and h (see row_slopes). which and cut hold the splits of all levels, leaves the values −rate · Σg /
   (Σh + l2), which are added to `raw`. Of the two halves of a group, only the rows of the smaller are added up: the sums of
   the larger are what is left. Every thread adds up rows of its own, so that it reads what it has written itself: that takes
   less time than the additions of others. All g and h are multiples of 1 / fine, small enough that every sum is exact, so it
   is the same in any order. A group without a split is closed: its rows go left at all further levels, and nothing is added
   up for it again. sums, own, both, group and rows are working space.
   bins [F, n], features [R, K], label [n], offsets [n + 1], entries [2P], both [n, 2], sums [2, 2^(levels − 1), K, B, 2],
   own [threads, 2^(levels − 1), K, B, 2], group, rows, raw [n] → which, cut [R, 2^levels − 1], leaves [R, 2^levels] */
void grow_trees(const uint8_t *bins, const int64_t *features, const uint8_t *label, const int64_t *offsets,
                const int64_t *entries, double *both, double *sums, double *own, int32_t *group, int32_t *rows,
                double *raw, int64_t *which, int64_t *cut, double *leaves, int64_t n, int64_t K, int64_t B,
                int64_t levels, int64_t R, double l2, double least, double tiny, double same, double rate,
                double weight, double fine, int64_t threads) {
    const int64_t number = (int64_t)1 << levels, size = K * B * 2;
    meeting_t meeting = {0, 0};
    const int members = team(n * K, threads);
    int64_t apart[members][number]; /* rows that go to the right half of each group, less those that go left, by thread */
    double totals[2][number][2];    /* g and h of each closed group, at this level and at the one before */
#pragma omp parallel num_threads(members)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads();
        const int64_t low = n * me / all, high = n * (me + 1) / all;                       /* rows of this thread */
        const int64_t first = size / LINE * me / all, stop = size / LINE * (me + 1) / all; /* and sums */
        double *mine = own + me * (number / 2) * size;
        uint8_t added[number]; /* is this group added up? */
        for (int64_t r = 0; r < R; r++) {
            int64_t *splits = which + r * (number - 1), *cuts = cut + r * (number - 1);
            double *values = leaves + r * number;
            const int64_t *chosen = features + r * K;
            memset(group + low, 0, sizeof(int32_t) * (high - low));
            for (int64_t i = low; i < high; i++) row_slopes(raw, label, offsets, entries, both, n, i, weight, fine);
            added[0] = 1;
            for (int64_t level = 0; level < levels; level++) {
                const int64_t groups = (int64_t)1 << level, pairs = (groups + 1) / 2;
                int64_t *split = splits + groups - 1, *last = cuts + groups - 1, *before = cuts + groups / 2 - 1;
#define OPEN(pair) (level == 0 || before[pair] < B - 1)
                double *here = sums + (level % 2) * (number / 2) * size, *above = sums + (1 - level % 2) * (number / 2) * size;
                int64_t count = 0;
                for (int64_t i = low; i < high; i++) {
                    rows[low + count] = (int32_t)i;
                    count += added[group[i]];
                }
                for (int64_t pair = 0; pair < pairs; pair++)
                    if (OPEN(pair)) memset(mine + pair * size, 0, sizeof(double) * size);
                add_bin_sums(bins, chosen, group, both, rows + low, mine, n, count, K, B);
                meet(&meeting, all);
                for (int64_t pair = 0; pair < pairs; pair++) {
                    if (!OPEN(pair)) continue;
                    const line_t *part = (const line_t *)(own + pair * size), *whole = (const line_t *)(above + pair * size);
                    line_t *sum = (line_t *)(here + 2 * pair * size), *rest = sum + size / LINE;
                    if (!added[2 * pair]) sum = rest, rest = sum - size / LINE;
                    for (int64_t j = first; j < stop; j++) {
                        line_t total = part[j];
                        for (int64_t other = 1; other < all; other++) total += part[j + other * (number / 2) * size / LINE];
                        sum[j] = total;
                        if (level) rest[j] = whole[j] - total;
                    }
                }
                meet(&meeting, all);
                for (int64_t i = groups * me / all; i < groups * (me + 1) / all; i++) {
                    double sides[4] = {0, 0, 0, 0}, *total = totals[level % 2][i];
                    if (OPEN(i / 2)) {
                        best_split(here + i * size, chosen, split + i, last + i, sides, K, B, l2, least, tiny, same);
                    } else {
                        split[i] = chosen[0], last[i] = B - 1;
                        if (i % 2 == 0) memcpy(sides, totals[1 - level % 2][i / 2], sizeof(double) * 2);
                    }
                    total[0] = sides[0], total[1] = sides[1];
                    for (int64_t side = 0; side < 2 && level == levels - 1; side++) {
                        const double h = sides[2 * side + 1] + l2;
                        values[2 * i + side] = -rate * sides[2 * side] / (h > tiny ? h : tiny);
                    }
                }
                meet(&meeting, all);
                memset(apart[me], 0, sizeof(int64_t) * groups);
                for (int64_t i = low; i < high; i++) {
                    const int32_t at = group[i], side = bins[split[at] * n + i] > last[at];
                    group[i] = 2 * at + side;
                    apart[me][at] += 2 * side - 1;
                }
                if (level == levels - 1) break;
                meet(&meeting, all);
                for (int64_t i = 0; i < groups; i++) {
                    int64_t more = 0;
                    for (int64_t other = 0; other < all; other++) more += apart[other][i];
                    added[2 * i] = last[i] < B - 1 && more >= 0;
                    added[2 * i + 1] = last[i] < B - 1 && more < 0;
                }
            }
#undef OPEN
            for (int64_t i = low; i < high; i++) raw[i] += values[group[i]];
            meet(&meeting, all);
        }
    }
}

/* Add the predictions of R trees of M nodes for each row to `out`, in order; the children of a leaf are the leaf itself.
   x [n, F], feature, left, right, threshold, value [R, M] → out [n] */
void tree_sums(const double *x, const int64_t *feature, const int64_t *left, const int64_t *right,
               const double *threshold, const double *value, double *out, int64_t n, int64_t F, int64_t R, int64_t M,
               int64_t threads) {
    IN_THREADS(8 * n * R, NULL, n, for (int64_t first = low; first < high; first += ROWS_AT_ONCE) {
        const int64_t stop = first + ROWS_AT_ONCE < high ? first + ROWS_AT_ONCE : high;
        for (int64_t r = 0; r < R; r++)
            for (int64_t i = first; i < stop; i++) {
                int64_t at = r * M, next = r * M;
                do {
                    at = next;
                    next = r * M + (x[i * F + feature[at]] <= threshold[at] ? left[at] : right[at]);
                } while (next != at);
                out[i] += value[at];
            }
    })
}

/* ---- the map of a run (report/projection.py) ---- */

/* Attraction along entries with weights p: out_i = Σ_j p_ij (y_i − y_j) / (1 + ‖y_i − y_j‖²).
   y [N, 2], offsets [N + 1], senders, p [E] → out [N, 2] */
void map_attraction(const float *y, const int64_t *offsets, const int64_t *senders, const float *p, float *out,
                    int64_t N, int64_t threads) {
    IN_THREADS(8 * offsets[N], offsets, N, for (int64_t i = low; i < high; i++) {
        float sum_a = 0, sum_b = 0;
        for (int64_t e = offsets[i]; e < offsets[i + 1]; e++) {
            const float a = y[2 * i] - y[2 * senders[e]], b = y[2 * i + 1] - y[2 * senders[e] + 1];
            const float w = p[e] / fma_(a, a, fma_(b, b, 1));
            sum_a = fma_(w, a, sum_a);
            sum_b = fma_(w, b, sum_b);
        }
        out[2 * i] = sum_a;
        out[2 * i + 1] = sum_b;
    })
}

/* Weights of the four cells around x, of which the first is returned: cubic interpolation. */
INLINE int64_t cubic(float x, float *w) {
    const int64_t cell = (int64_t)x;
    const float f = x - cell;
    w[0] = -f * (f - 1) * (f - 2) / 6;
    w[1] = (f + 1) * (f - 1) * (f - 2) / 2;
    w[2] = -(f + 1) * f * (f - 2) / 2;
    w[3] = (f + 1) * f * (f - 1) / 6;
    return cell - 1;
}

/* Spread C charges of each point over the cells around it; the grid starts as 0.
   x [N, 2] in cells, at least 1 and below G − 2, charges [C, N] → grid [C, G, G] */
void map_spread(const float *x, const float *charges, float *grid, int64_t N, int64_t C, int64_t G, int64_t threads) {
    IN_THREADS(24 * N * C, NULL, C, for (int64_t c = low; c < high; c++) for (int64_t i = 0; i < N; i++) {
        float across[4], along[4];
        const int64_t row = cubic(x[2 * i], across), column = cubic(x[2 * i + 1], along);
        for (int r = 0; r < 4; r++) {
            float *cells = grid + (c * G + row + r) * G + column;
            const float share = across[r] * charges[c * N + i];
            for (int k = 0; k < 4; k++) cells[k] = fma_(share, along[k], cells[k]);
        }
    })
}

/* Read C fields at each point. x as above, fields [C, G, G] → out [C, N] */
void map_collect(const float *x, const float *fields, float *out, int64_t N, int64_t C, int64_t G, int64_t threads) {
    IN_THREADS(24 * N * C, NULL, N, for (int64_t i = low; i < high; i++) {
        float across[4], along[4];
        const int64_t row = cubic(x[2 * i], across), column = cubic(x[2 * i + 1], along);
        for (int64_t c = 0; c < C; c++) {
            float sum = 0;
            for (int r = 0; r < 4; r++) {
                const float *cells = fields + (c * G + row + r) * G + column;
                for (int k = 0; k < 4; k++) sum = fma_(across[r] * along[k], cells[k], sum);
            }
            out[c * N + i] = sum;
        }
    })
}

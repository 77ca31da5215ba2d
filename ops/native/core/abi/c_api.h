/* The C ABI of libhotrow_core.so, for the TensorFlow ops, the Python binding and the server. Every
 * call returns 0, or a status code with gRPC's numbers; hr_last_error() then has the reason, for
 * the calling thread. Nothing here throws. Arrays belong to the caller. N keys, D weights a row, S
 * floats of optimizer state a row, B samples. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/base/c_types.h"

#if defined(HOTROW_CORE_BUILD)
#define HR_API __attribute__((visibility("default")))
#else
#define HR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The message of this thread's last failed call; valid until its next call. */
HR_API const char* hr_last_error(void);

/* --- keys and dispatch ------------------------------------------------------------------------ */
/* keys[i] = FarmHash Fingerprint64(prefix + data[offsets[i]:offsets[i+1]]); offsets: (N + 1). */
HR_API int hr_fingerprint64(const char* prefix, size_t prefix_bytes, const char* data,
                            const int64_t* offsets, size_t count, int64_t* keys);
/* unique: room for N, the first *unique_count are written; inverse: (N). */
HR_API int hr_unique(const int64_t* keys, size_t count, int64_t* unique, int32_t* inverse,
                     size_t* unique_count);
/* grouped, order: (N); counts: (shards). */
HR_API int hr_group_by_owner(const int64_t* keys, size_t count, int32_t shards, int hashed,
                             int64_t* grouped, int32_t* order, int64_t* counts);

/* --- tables ----------------------------------------------------------------------------------- */
typedef struct hr_table hr_table; /* a reference; release it with hr_table_release */

typedef struct {
  int kind; /* 0 SGD, 1 Momentum, 2 Adagrad, 3 RowwiseAdagrad, 4 Adam, 5 FTRL; see
               kernels/optimizer.h */
  float learning_rate;
  float clip_row_norm; /* 0: none */
  float l2;
  float weight_decay;
  float momentum;
  int nesterov;
  float initial_accumulator;
  float epsilon;
  double beta_1;
  double beta_2;
  int row_steps;
  float l1;
  float ftrl_l2;
  float l2_shrinkage;
  float beta;
} hr_optimizer;

typedef struct {
  int kind;               /* 0 always, 1 exact counter, 2 counting Bloom filter */
  uint32_t occurrences;   /* a key gets a row with its n-th occurrence */
  uint64_t expected_keys; /* Bloom: keys that wait at a time */
  double error_rate;      /* Bloom: probability that a new key is admitted early */
} hr_admission;

typedef struct { /* in steps of the table; 0: never */
  uint32_t after_steps;
  uint32_t rare_count;
  uint32_t rare_after_steps;
  uint32_t sweep_steps; /* every row is checked once in this many steps */
  uint64_t tombstones;  /* the most that are kept; beyond it the older half is dropped */
} hr_expiry;

typedef struct { /* the device tier, in rows or bytes; both 0: none */
  uint64_t rows;
  uint64_t bytes;
  int policy;       /* 0 LFU, 1 LRU */
  const char* disk; /* directory of the lines outside it; null or "": they are in memory */
  int device;       /* HR_RAM, or HR_GPU: then steps need a stream, hr_stream */
  int gpu;          /* HR_GPU: its CUDA device number */
} hr_cache;
#define HR_RAM 0
#define HR_GPU 1

typedef struct {
  size_t width;            /* D */
  int64_t vocabulary_size; /* keys in [0, vocabulary_size); -1: every key */
  float default_value;     /* of the row that an unknown key reads */
  int init_kind;           /* 0 constant, 1 uniform, 2 normal */
  float init_scale;
  uint64_t seed;
  const char* name; /* for messages; the initial values depend on it */
  hr_optimizer optimizer;
  int weights_type; /* 0 float32, 1 bfloat16, 2 float16 */
  int state_type;
  hr_admission admission;
  hr_expiry expiry;
  hr_cache cache;
  int32_t shards; /* in this process */
  int hashed;     /* owner from the mixed key */
  /* For a table that is split over ranks: the name of their collectives (abi/ranks.h). Then this is
   * one rank's part, and all ranks call lookups and updates together. Null or "": the table is
   * whole. */
  const char* ranks;
  int scheme;    /* 0 row, 1 column, 2 row_broadcast, 3 table, 4 replicated; see table/sharding.h */
  int32_t owner; /* 3: the rank that has the table */
  uint32_t staleness;    /* 0, 3: updates that a replica may lag behind its owner; 0: no replicas */
  uint64_t replica_rows; /* of other ranks, at each rank */
} hr_table_options;

/* A line of a table in bytes: [weights: width of weights_type | vectors x width of state_type |
 * pad to 4 bytes | scalars x float32]. */
typedef struct {
  size_t width;
  int weights_type;
  int state_type;
  size_t vectors;
  size_t scalars;
  size_t state_offset;
  size_t scalars_offset;
  size_t line_bytes;
} hr_layout;

typedef struct {
  uint64_t rows;
  uint64_t bytes;
  uint64_t lookups;  /* keys of updates */
  uint64_t admitted; /* keys that were given a row */
  uint64_t refused;  /* occurrences of keys that were not admitted */
  uint64_t waiting;  /* keys whose occurrences are counted */
  uint64_t expired;
  uint64_t tombstones;
  uint64_t tombstones_dropped; /* because there were too many; since the table was made */
  /* The device tier, in distinct keys of training batches. */
  uint64_t cache_slots;        /* 0: there is none */
  uint64_t cache_hits;         /* rows that were there */
  uint64_t cache_hit_lookups;  /* lookups of these rows, each key as often as it occurred */
  uint64_t cache_misses;       /* keys whose rows were not there */
  uint64_t cache_inserted;     /* of these: rows that came in */
  uint64_t cache_evicted;      /* rows evicted for them */
  uint64_t cache_written_back; /* rows brought up to date in the host tier */
  uint64_t cache_prefetched;   /* rows that came in by prefetching */
  uint64_t cache_stall_ns;     /* time that lookups spent on bringing rows in */
  uint64_t disk_bytes;         /* of the file; 0 when lines are in memory */
  uint64_t disk_lines_read;
  uint64_t disk_lines_written;
  uint64_t updates;           /* of rows, those left out included */
  uint64_t nonfinite_updates; /* left out: the row would not have been finite */
} hr_statistics;

/* Arrays of rows; each may be null. lines: (N, line_bytes). */
typedef struct {
  int64_t* keys;
  uint8_t* lines;
  uint32_t* clocks;
  uint32_t* counts;
  uint32_t* places;
} hr_rows;

HR_API int hr_table_create(const char* handle, const hr_table_options* options, hr_table** table);
HR_API int hr_table_open(const char* handle, hr_table** table);
HR_API void hr_table_release(hr_table* table);
/* Removes the name from the registry; the last reference frees the table. */
HR_API void hr_table_drop(const char* handle);

/* The layout of the rows of this rank's part. */
HR_API void hr_table_layout(const hr_table* table, hr_layout* layout);
/* The columns of this rank's part: the first one and their count; all: D. */
HR_API void hr_table_columns(const hr_table* table, size_t* first, size_t* count, size_t* all);
/* owned[i]: whether this rank's part has the row of keys[i]; (count). */
HR_API void hr_table_owns(const hr_table* table, const int64_t* keys, size_t count, uint8_t* owned);
/* The value that an unknown key reads, rounded to the weights' type. */
HR_API float hr_table_default_value(const hr_table* table);
HR_API size_t hr_table_size(const hr_table* table);
HR_API size_t hr_table_bytes(const hr_table* table);
HR_API uint32_t hr_table_step(const hr_table* table);
HR_API void hr_table_set_step(hr_table* table, uint32_t step);
HR_API void hr_table_statistics(const hr_table* table, hr_statistics* statistics);
/* keys: (N), duplicates allowed; rows: (N, D). insert: unknown keys are counted and given a row
 * when admitted; else they read the default row. unknown (may be null): how many distinct keys
 * read the default row. */
HR_API int hr_table_lookup(hr_table* table, const int64_t* keys, size_t count, int insert,
                           float* rows, size_t* unknown, const hr_executor* executor);
/* Applies the optimizer once to each distinct key. gradients: (N, D). learning_rate: NaN uses the
 * table's own. */
HR_API int hr_table_update(hr_table* table, const int64_t* keys, size_t count,
                           const float* gradients, float learning_rate,
                           const hr_executor* executor);
/* For tables with staleness: sends all pending gradients to their owners, as a step of those
 * tables. All ranks call it. learning_rates: (T), or null: the tables' own. */
HR_API int hr_tables_push_all(hr_table* const* tables, size_t table_count,
                              const float* learning_rates);
HR_API size_t hr_table_shard_count(const hr_table* table);
/* Copies up to `count` rows from a cursor on; 0 starts. *next is UINT64_MAX at the end. */
HR_API int hr_table_export(const hr_table* table, uint64_t cursor, size_t count,
                           const hr_rows* rows, size_t* written, uint64_t* next);
/* Inserts rows; replaces an existing key's row. places may be null: any place. */
HR_API int hr_table_import(hr_table* table, const int64_t* keys, size_t count, const uint8_t* lines,
                           const uint32_t* clocks, const uint32_t* counts, const uint32_t* places);
HR_API int hr_table_remove(hr_table* table, const int64_t* keys, size_t count, size_t* removed);
HR_API int hr_table_digest(const hr_table* table, int weights_only, uint64_t digest[2]);
/* The same of rows in arrays. keys, clocks, counts: (count); lines: (count, line_bytes). */
HR_API int hr_lines_digest(const int64_t* keys, const uint8_t* lines, const uint32_t* clocks,
                           const uint32_t* counts, size_t count, size_t line_bytes,
                           uint64_t digest[2]);
HR_API int hr_table_clear(hr_table* table);

/* Takes the keys of a window of batches and brings their rows into the device tier. Call it when
 * the first batch of the window before begins. Copies the keys. */
HR_API int hr_table_prefetch(hr_table* table, const int64_t* keys, size_t count);
/* Waits until the rows of all windows are there. */
HR_API int hr_table_wait_for_prefetch(hr_table* table);
/* keys: (count), distinct, with how often each appeared in a sample. Fills up to `share` of the
 * device tier with the most frequent keys that have a row, and prefers them from now on. warmed:
 * how many rows came in. */
HR_API int hr_table_warm_up(hr_table* table, const int64_t* keys, const uint32_t* counts,
                            size_t count, double share, size_t* warmed);

/* Bytes that the core allocated. */
typedef struct {
  uint8_t* data;
  size_t size;
} hr_bytes;
HR_API void hr_bytes_free(hr_bytes* bytes);

/* keys: int64, steps: uint32, one of each per tombstone, in the order of the keys. */
HR_API int hr_table_tombstones(const hr_table* table, hr_bytes* keys, hr_bytes* steps);
HR_API int hr_table_forget_tombstones(hr_table* table, uint32_t up_to_step);
/* Records expired keys from now on; before, they are not kept. */
HR_API int hr_table_keep_tombstones(hr_table* table);
/* Every key that expired after this step has a tombstone, unless it has a row again. */
HR_API uint32_t hr_table_forgotten_step(const hr_table* table);
/* All state of a table besides its rows. */
HR_API int hr_table_state(const hr_table* table, hr_bytes* state);
HR_API int hr_table_set_state(hr_table* table, const uint8_t* data, size_t size);
/* Restores from states of other ranks, or of another number of ranks. data, sizes, counts: (count).
 * counts[i]: whether this rank continues the totals of the i-th. */
HR_API int hr_table_merge_states(hr_table* table, const uint8_t* const* data, const size_t* sizes,
                                 const uint8_t* counts, size_t count);

/* Marks rows that change for publishing, from now on, and those whose clock is above a step; as
 * removed the keys that expired after it. since: null: all rows. */
HR_API int hr_table_begin_publishing(hr_table* table, const uint32_t* since);
/* Marks the rows of keys; a key without a row counts as removed. keys: (count). */
HR_API int hr_table_mark_for_publishing(hr_table* table, const int64_t* keys, size_t count);
/* Rows and removed keys that are marked. */
HR_API size_t hr_table_marked_rows(const hr_table* table);

/* --- snapshots: rows as they were, while training goes on; see table/snapshot.h --------------- */
typedef struct hr_snapshot hr_snapshot;

/* The rows that a snapshot reads: all; those written or created since the last kept one of the
 * first two; those marked since the last kept one for publishing. */
enum { HR_SINCE_ALL = 0, HR_SINCE_CHECKPOINT = 1, HR_SINCE_PUBLISH = 2 };

/* Opens a snapshot of each table; their copies of rows share one budget of memory. tables,
 * snapshots: (count). since: HR_SINCE_*. */
HR_API int hr_snapshots_open(hr_table* const* tables, size_t count, int since,
                             hr_snapshot** snapshots);
HR_API size_t hr_snapshot_rows(const hr_snapshot* snapshot); /* at most */
HR_API uint32_t hr_snapshot_step(const hr_snapshot* snapshot);
HR_API int hr_snapshot_state(const hr_snapshot* snapshot, hr_bytes* state);
/* int64 keys that had a row in the last kept snapshot and have none now. */
HR_API int hr_snapshot_removed(const hr_snapshot* snapshot, hr_bytes* keys);
/* How many of the rows that were read so far hold a NaN or an infinity. */
HR_API size_t hr_snapshot_nonfinite_rows(const hr_snapshot* snapshot);
/* Bytes of the copies of its rows. */
HR_API size_t hr_snapshot_copied_bytes(const hr_snapshot* snapshot);
/* Whether the copies of all snapshots that were opened with it take more than half of the budget:
 * read the one with the most copied bytes. */
HR_API int hr_snapshot_short_of_memory(const hr_snapshot* snapshot);
/* How long steps waited because the budget was used up. */
HR_API double hr_snapshot_waited_seconds(const hr_snapshot* snapshot);
/* Whether it was given up before it was read to its end; reads fail then. */
HR_API int hr_snapshot_lost(const hr_snapshot* snapshot);
/* Rows come in any order. *written is 0 at the end. */
HR_API int hr_snapshot_read(hr_snapshot* snapshot, size_t count, const hr_rows* rows,
                            size_t* written);
/* Adds up to `count` rows that hr_snapshot_read does not give, since they are not due, to the
 * digest; added: how many, 0 at the end. */
HR_API int hr_snapshot_add_unchanged(hr_snapshot* snapshot, size_t count, size_t* added);
/* Of all rows of the moment, as hr_table_digest. known: whether both of the above ended and no row
 * was left out; an increment leaves out lines on disk. */
HR_API int hr_snapshot_digest(hr_snapshot* snapshot, uint64_t digest[2], int* known);
/* Whether the digest is known at the end. */
HR_API int hr_snapshot_digests_all(const hr_snapshot* snapshot);
HR_API int hr_snapshot_close(hr_snapshot* snapshot, int keep);
HR_API void hr_snapshot_free(hr_snapshot* snapshot); /* closes it, not kept */

/* --- steps of a layer, for the ops ------------------------------------------------------------ */
typedef struct {
  const char* name;
  const int64_t* keys; /* (N) */
  size_t key_count;
  const int64_t* row_splits; /* (B + 1), or null: sample b has key b alone */
  size_t samples;            /* B */
  const float* weights;      /* (N), or null */
  int combiner;              /* 0 none, 1 sum, 2 mean, 3 sqrtn */
  size_t table;              /* in the call */
} hr_feature;

/* The tables (T, distinct) and features (F) of a call. widths: D of each table, checked. */
typedef struct {
  hr_table* const* tables;
  const size_t* widths; /* null: not checked */
  size_t table_count;
  const hr_feature* features;
  size_t feature_count;
  const hr_executor* executor; /* null: the caller's thread */
} hr_layer_call;

/* The commit token of GradientPasses: its length, what a backward pass writes into its slot, and
 * what the anchor holds. */
#define HR_SLOTS 256
#define HR_UNIT 0x1p-20f
#define HR_UNCHANGED -0x1p-60f
/* Where a step's work goes when the caches of its tables are on a GPU: a cudaStream_t. Then keys,
 * row_splits, weights, pooled values and gradients are on that GPU, too. Null instead: all is in
 * RAM. A step in the wrong place fails with FailedPrecondition, as does one on a GPU when the core
 * was built without CUDA. */
typedef struct {
  void* stream;
} hr_stream;
/* pooled[f]: (B_f, D), or (N_f, D) without a combiner. *ticket: for hr_backward. unknown (may be
 * null): how many distinct keys read the default row. */
HR_API int hr_forward(const hr_layer_call* call, int insert, float* const* pooled, int64_t* ticket,
                      size_t* unknown, const hr_stream* on);
/* The slot of the next backward pass, in [0, HR_SLOTS). */
HR_API size_t hr_next_slot(hr_table* table);
/* What happens to gradients: they wait in a slot for hr_commit; or they are applied at once, and
 * the following commit only checks; or they are applied at once, outside of any step. */
#define HR_WAIT 0
#define HR_APPLY 1
#define HR_UPDATE 2
typedef struct {
  int what;                    /* HR_WAIT, HR_APPLY or HR_UPDATE */
  size_t slot;                 /* of hr_next_slot */
  int64_t ticket;              /* of the forward pass, or 0 */
  const float* learning_rates; /* (T), or null: the tables' own */
  float global_clip_norm;      /* 0: none */
} hr_backward_options;
/* gradients[f]: as pooled[f]. */
HR_API int hr_backward(const hr_layer_call* call, const float* const* gradients,
                       const hr_backward_options* options, const hr_stream* on);
/* For tables on ranks: prefetches a batch. Its keys go to their owners while the batch before it is
 * trained. Copies the features. Batches must then be trained in this order. */
HR_API int hr_rank_prefetch(const hr_layer_call* call);
/* commit_token: (HR_SLOTS), in RAM; see GradientPasses::end_step. learning_rates: (T). */
HR_API int hr_commit(hr_table* const* tables, size_t table_count, const float* commit_token,
                     const float* learning_rates, float global_clip_norm,
                     const hr_executor* executor, const hr_stream* on);

/* From now on the core allocates memory of CUDA device `device` from this allocator; null: from
 * CUDA. The allocator is copied. Allocating and freeing memory waits for the device: at the
 * creation of a table, and in steps only for batches larger than any before. */
HR_API int hr_device_set_allocator(int device, const hr_device_allocator* allocator);

/* From now on the core calls `warn` with failures that it has handled, from any thread; null: with
 * none. */
HR_API void hr_set_warn(void (*warn)(const char* message));

/* --- serving ---------------------------------------------------------------------------------- */
typedef struct hr_serving hr_serving; /* a reference to the tables of a version */

typedef struct {     /* where rows are, and how they are read */
  const char* store; /* URL; "" uses the manifest's own */
  /* For Redis: the generation's control record, the nodes as JSON (core/redis/topology.h), and the
   * credentials. "": the store is embedded. */
  const char* generation;
  const char* topology;
  const char* username;
  const char* password;
  int database;
  int64_t timeout_millis; /* for all reads of a request; 0: none */
  uint64_t max_reads;     /* of the store at a time; 0: the default */
  int default_on_failure; /* default rows for keys that could not be read; else the lookup fails */
  uint64_t cache_rows;    /* of the cache of hot rows; both 0: none */
  uint64_t cache_bytes;
  int cache_lru;                    /* else the least frequently used row is evicted */
  uint64_t gpu_cache_bytes;         /* of hot rows in a GPU's memory, over those in RAM; 0: none */
  int gpu;                          /* CUDA's number of that GPU */
  int gpu_if_faster;                /* only for requests that are large enough to gain from it */
  uint64_t warm_up_rows_per_second; /* read from the store to fill the cache; 0: any number */
  uint64_t shown;                   /* as in hr_serving_show, without layers; 0: rows as exported */
  uint64_t fence;                   /* as in hr_serving_show */
} hr_serving_options;
HR_API int hr_serving_bind(const char* model, int64_t version, const char* manifest_path,
                           const hr_serving_options* options);
/* Binds (name, version) to the tables of (model, version). */
HR_API int hr_serving_share(const char* model, int64_t version, const char* name);
HR_API void hr_serving_unbind(const char* model, int64_t version);

typedef struct {
  const char* blocks; /* a file of a cut's blocks with rows */
  uint64_t version;   /* of its rows */
} hr_cut_layer;
/* From now on lookups read these cuts over the rows of the store, the newest first; lookups in
 * flight keep the earlier ones. shown: newer rows of the store fail; 0: no row fails. Layers that
 * are not listed have been folded into the store. fence: rows of shards with a lower watermark are
 * of an earlier state, to which the store went back, and fail; 0: they are not checked. */
HR_API int hr_serving_show(const char* model, int64_t version, uint64_t shown,
                           const hr_cut_layer* layers, size_t count, uint64_t fence);
/* Merges older cuts in memory if there are many, beside lookups, which read the same rows before
 * and afterwards. */
HR_API int hr_serving_merge_layers(const char* model, int64_t version);
/* Drops cached rows, which may be older than the store's: they are read anew. */
HR_API int hr_serving_forget_cached(const char* model, int64_t version);
/* Sets whether rows in memory may be old because the store cannot be followed. */
HR_API int hr_serving_set_stale(const char* model, int64_t version, int stale);
/* The same for a SavedModel that no server manages, by the path of its manifest. */
HR_API int hr_serving_attach(const char* manifest_path, const hr_serving_options* options);
HR_API void hr_serving_detach(const char* manifest_path);
HR_API int hr_serving_set_attached_topology(const char* manifest_path, const char* topology);
HR_API int hr_serving_show_attached(const char* manifest_path, uint64_t shown,
                                    const hr_cut_layer* layers, size_t count, uint64_t fence);
/* Sets the new nodes of a bound version's store. */
HR_API int hr_serving_set_topology(const char* model, int64_t version, const char* topology);
/* Calls visit for each metric of a bound version: a value by name and, for some, by table or node.
 * gauge: the value may decrease. */
typedef void (*hr_visit_count)(void* context, const char* name, const char* of, double value,
                               int gauge);
HR_API int hr_serving_counts(const char* model, int64_t version, hr_visit_count visit,
                             void* context);
/* Calls visit for each histogram of a bound version, by name. bounds: (count), upper ones, that do
 * not belong to their buckets; buckets: (count + 1), how many values are in each. */
typedef void (*hr_visit_histogram)(void* context, const char* name, const double* bounds,
                                   size_t count, const uint64_t* buckets, double sum);
HR_API int hr_serving_histograms(const char* model, int64_t version, hr_visit_histogram visit,
                                 void* context);
/* The tables of (model, version) if a server has bound them; else the manifest's. model may be
 * null. */
HR_API int hr_serving_open(const char* model, int64_t version, const char* manifest_path,
                           hr_serving** tables);
HR_API void hr_serving_release(hr_serving* tables);
/* Fails with FailedPrecondition when there is no such GPU, or in a core without CUDA. */
HR_API int hr_serving_check_gpu(int gpu);
/* CUDA's number of the GPU that has hot rows of these tables, or -1. */
HR_API int hr_serving_gpu(const hr_serving* tables);
/* Unique in this process. */
HR_API uint64_t hr_serving_id(const hr_serving* tables);
/* The number of a table, for hr_feature.table. width must equal the store's. */
HR_API int hr_serving_table(const hr_serving* tables, const char* table, size_t width,
                            size_t* number);
typedef struct { /* how many keys of each sample; those of features with another number of outputs
                  * count for the first one */
  int32_t* defaulted; /* (samples): got default rows, since reads failed */
  int32_t* stale;     /* (samples): got rows that may be old (hr_serving_set_stale) */
  size_t samples;
} hr_sample_counts;
/* Called when a lookup must read rows: until when it may, in nanoseconds of the monotonic clock;
 * INT64_MAX: for any time. A request's lookups share one budget, which its first read begins.
 * timeout_millis: as in hr_serving_options. */
typedef struct {
  int64_t (*until)(void* context, int64_t timeout_millis);
  void* context;
} hr_read_budget;
/* Until when the requests of this thread may run, as above; a budget's `until` may use it. */
HR_API void hr_serving_set_request_end(int64_t until);
HR_API int64_t hr_serving_request_end(void);
/* All features in one call. budget: null: each lookup has its own. on: null, or a stream of the
 * tables' GPU: then `pooled` is on that GPU and is written in the order of the stream. *rest: null
 * when the lookup is over. Else some rows must be read from a store on the network:
 * hr_serving_finish_lookup, in any thread, ends the lookup. Until then `tables` and all arrays but
 * `features` and `pooled` themselves must stay. */
typedef struct hr_lookup_rest hr_lookup_rest;
HR_API int hr_serving_lookup(const hr_serving* tables, const hr_feature* features, size_t count,
                             float* const* pooled, const hr_executor* executor,
                             const hr_sample_counts* counts, const hr_read_budget* budget,
                             const hr_stream* on, hr_lookup_rest** rest);
/* Frees `rest`, also when it fails. */
HR_API int hr_serving_finish_lookup(hr_lookup_rest* rest, const hr_executor* executor);
/* A server's say: whether the calling thread may wait for the store, which answers within `seconds`
 * or so. Then the lookup is finished in it, without a rest. It is called before each such wait. */
typedef int (*hr_may_wait)(double seconds);
HR_API void hr_serving_set_may_wait(hr_may_wait may_wait);

#ifdef __cplusplus
}
#endif

#include "service/answering.h"

#include <memory>
#include <numeric>

#include "wire/answer.h"

namespace hotrow_server {
namespace {

constexpr char kDefaultRows[] = "x-hotrow-default-rows";
constexpr char kStaleRows[] = "x-hotrow-stale-rows";

// The fetches of a run for the answer's metadata: names of metadata, and tensors.
using Counts = std::vector<std::pair<const char*, TF_Output>>;

Counts counts_of(const Servable& servable, const std::vector<std::string>& signatures) {
  const bool defaults = servable.request().rows().default_on_failure(), stale = servable.stale();
  Counts fetched;
  // Signatures may have a lookup in common, which then counts for all of them.
  const auto add = [&fetched](const char* name, const TF_Output& counts) {
    if (counts.oper == nullptr) return;
    for (const auto& [known, output] : fetched) {
      if (known == name && same(output, counts)) return;
    }
    fetched.emplace_back(name, counts);
  };
  if (!defaults && !stale) return fetched;
  for (const std::string& name : signatures) {
    const Signature* const signature = servable.signature(name);
    if (signature == nullptr) continue;
    if (defaults) add(kDefaultRows, signature->default_rows());
    if (stale) add(kStaleRows, signature->stale_rows());
  }
  return fetched;
}

// results: of a run whose last fetches are the counts, int32, of each sample.
Metadata metadata_of(const Counts& fetched, const Results& results) {
  Metadata metadata;
  for (const char* const name : {kDefaultRows, kStaleRows}) {
    int64_t total = 0;
    for (size_t i = 0; i < fetched.size(); ++i) {
      if (fetched[i].first != name) continue;
      const TF_Tensor* const counts = results[results.size() - fetched.size() + i];
      const auto* const values = static_cast<const int32_t*>(TF_TensorData(counts));
      total = std::accumulate(values, values + TF_TensorElementCount(counts), total);
    }
    if (total > 0) metadata.emplace_back(name, std::to_string(total));
  }
  return metadata;
}

// The results of a run. The message of an op that refused an input names neither the input nor the
// model's shape: `undeclared`, of plan_predict, names both.
const Results& results_of(const Outcome& outcome, const std::string& undeclared) {
  if (undeclared.empty()) return outcome.get();
  try {
    return outcome.get();
  } catch (const Refused& refused) {
    if (refused.code() != grpc::StatusCode::INVALID_ARGUMENT) throw;
    const std::string message = refused.what();
    if (message.find("{{node ") == std::string::npos) throw;  // an error of the batcher, say
    throw Refused(refused.code(), message + "\n\t (" + undeclared + ")");
  }
}

}  // namespace

void answer_plan(Plan plan, const Deadline& deadline, RequestFacts* facts,
                 std::function<void(const grpc::Status&, const Metadata&)> done) {
  const auto kept = std::make_shared<Plan>(std::move(plan));
  Run run = std::move(kept->run);
  run.deadline = deadline;
  const std::string undeclared = std::move(run.undeclared);
  Counts fetched = counts_of(*kept->way.servable, kept->signatures);
  for (const auto& [metadata, counts] : fetched) run.fetches.push_back(counts);
  kept->way.servable->run(std::move(run),
                          // Keeps the plan's route, which holds the servable.
                          [kept, fetched = std::move(fetched), done = std::move(done), facts,
                           undeclared, started = Stopwatch::now()](const Outcome& outcome) {
                            Metadata metadata;
                            const grpc::Status status = status_of([&] {
                              const Results& results = results_of(outcome, undeclared);
                              metadata = metadata_of(fetched, results);
                              count_run(*facts, micros_since(started));
                              kept->reply(results);
                              if (kept->log) kept->log();
                            });
                            done(status, metadata);
                          });
}

void log_answer(LogField field, const Routes::Route& way, const RequestFacts& facts,
                const grpc::ByteBuffer& request, const grpc::ByteBuffer& reply) {
  // Several signatures answer a MultiInferenceRequest.
  const bool several = field == LogField::kMultiInference;
  way.log->add(static_cast<int>(field),
               {way.version, several ? "" : facts.signature, way.servable->request().tags()},
               request, reply);
}

}  // namespace hotrow_server

// From the plan of a request to its end: the run, the reply, the metadata, counts and the log.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "service/inference.h"

namespace hotrow_server {

// Of an answer: how many lookups of the request got default rows because the store could not be
// read (x-hotrow-default-rows), and how many got rows that may be old because the store cannot be
// followed (x-hotrow-stale-rows). Absent: none.
using Metadata = std::vector<std::pair<std::string, std::string>>;

// Runs a plan and makes its reply. Calls `done` once, at once or later from another thread; until
// then the facts, and what the plan's reply writes, must not move.
void answer_plan(Plan plan, const Deadline& deadline, RequestFacts* facts,
                 std::function<void(const grpc::Status&, const Metadata&)> done);

// The fields of a PredictionLog, by method.
enum class LogField { kClassify = 2, kRegress = 3, kMultiInference = 4, kPredict = 6 };

// Logs a request that was answered, if it is in the sample of its model's log. request, reply: of
// the wire.
void log_answer(LogField field, const Routes::Route& way, const RequestFacts& facts,
                const grpc::ByteBuffer& request, const grpc::ByteBuffer& reply);

}  // namespace hotrow_server

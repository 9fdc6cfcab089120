// The C API: converts, calls, and turns every exception into a status.

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/c_api_conversion.hpp"
#include "core/message.hpp"
#include "core/names.hpp"
#include "kronsparse/opencl.hpp"
#include "kronsparse/tune.hpp"
#include "kronsparse/version.hpp"

using namespace kronsparse;
using namespace kronsparse::c_api;

extern "C" {

const char* kronsparse_version(void) { return KRONSPARSE_VERSION; }

const char* kronsparse_last_error(void) { return last_error(); }

const char* kronsparse_status_name(kronsparse_status status) {
  const int number = number_of(status);
  // The names are literals, hence zero-terminated.
  return number == KRONSPARSE_OK ? "ok" : name(static_cast<ErrorCode>(number)).data();
}

kronsparse_status kronsparse_problem_parse(const char* text, kronsparse_problem* problem) {
  return guarded([&] {
    check_not_null("text", text);
    check_not_null("problem", problem);
    *problem = to_c(Problem::parse(text));
  });
}

kronsparse_status kronsparse_problem_print(const kronsparse_problem* problem, char* text, size_t size) {
  return guarded([&] {
    check_not_null("text", text);
    print_text(to_cpp(problem).to_string(), text, size);
  });
}

kronsparse_status kronsparse_predict(const kronsparse_problem* problem, const char* device,
                                     const char* implementation, double* seconds) {
  return guarded([&] {
    check_not_null("seconds", seconds);
    const Problem converted = to_cpp(problem);
    converted.validate();
    const Device place = device_of(device);
    if (implementation ==
        nullptr) {  // a plan that keeps its values takes the fastest, whatever packing costs
      *seconds = kronsparse::predicted_seconds(converted, place);
      return;
    }
    *seconds = Plan(converted, place, forced_of(implementation)).predicted_seconds(batch_of(converted));
  });
}

kronsparse_status kronsparse_devices(kronsparse_device* devices, size_t capacity, size_t* count) {
  return guarded([&] { copy_list(kronsparse::devices(), devices, capacity, count, "devices", copy_device); });
}

kronsparse_status kronsparse_opencl_device(void* context, void* device_id, kronsparse_device* device) {
  return guarded([&] {
    check_not_null("device", device);
    const Device made = kronsparse::opencl_device(context, device_id);
    for (const DeviceInfo& info : kronsparse::devices())
      if (info.device == made) return copy_device(info, *device);
    throw Error(ErrorCode::device, "context: " + why_unusable(made));
  });
}

kronsparse_status kronsparse_opencl_handles(const char* device, void** context, void** device_id,
                                            void** queue) {
  return guarded([&] {
    const kronsparse::OpenclHandles handles = kronsparse::opencl_handles(device_of(device));
    if (context != nullptr) *context = handles.context;
    if (device_id != nullptr) *device_id = handles.device_id;
    if (queue != nullptr) *queue = handles.queue;
  });
}

kronsparse_status kronsparse_opencl_address(const char* device, void* buffer, void** address) {
  return guarded([&] {
    check_not_null("address", static_cast<void*>(address));
    *address = kronsparse::opencl_address(device_of(device), buffer);
  });
}

kronsparse_status kronsparse_opencl_forget(const char* device, void* address) {
  return guarded([&] { kronsparse::opencl_forget(device_of(device), address); });
}

kronsparse_status kronsparse_why_unusable(const char* device, char* text, size_t size) {
  return guarded([&] {
    check_not_null("text", text);
    if (size == 0) throw Error(ErrorCode::size_mismatch, "size: 0 bytes given, must be at least 1");
    const std::string reason = why_unusable(device_of(device));
    const std::size_t length = std::min(reason.size(), size - 1);
    std::copy_n(reason.data(), length, text);
    text[length] = '\0';
  });
}

kronsparse_status kronsparse_implementations(kronsparse_implementation* implementations, size_t capacity,
                                             size_t* count) {
  return guarded([&] {
    copy_list(kronsparse::implementations(), implementations, capacity, count, "implementations",
              [](const ImplementationInfo& info, kronsparse_implementation& c) {
                copy_text(c.name, info.name);
                copy_text(c.backend, name(info.backend));
                copy_text(c.summary, info.summary);
              });
  });
}

kronsparse_status kronsparse_steps(const kronsparse_problem* problem, kronsparse_problem* steps,
                                   size_t capacity, size_t* count) {
  return guarded([&] {
    copy_list(steps_of(to_cpp(problem)), steps, capacity, count, "steps",
              [](const Problem& step, kronsparse_problem& c) { c = to_c(step); });
  });
}

kronsparse_status kronsparse_candidates(const kronsparse_problem* problem, const char* device,
                                        kronsparse_candidate* candidates, size_t capacity, size_t* count) {
  return guarded([&] {
    copy_list(kronsparse::candidates(to_cpp(problem), device_of(device)), candidates, capacity, count,
              "candidates", [](const Candidate& candidate, kronsparse_candidate& c) {
                copy_text(c.implementation, candidate.implementation);
                copy_text(c.refusal, candidate.refusal);
                c.predicted_seconds = candidate.predicted_seconds;
                c.is_measured = candidate.is_measured ? 1 : 0;
              });
  });
}

kronsparse_status kronsparse_tune(const kronsparse_problem* problem, const char* device, int most) {
  return guarded(
      [&] { static_cast<void>(kronsparse::tune(to_cpp(problem), device_of(device), {.most = most})); });
}

kronsparse_status kronsparse_plan_create(const kronsparse_problem* problem, const void* const* values,
                                         const char* device, const char* implementation,
                                         kronsparse_plan** plan) {
  return guarded([&] {
    check_not_null("plan", plan);
    const Problem converted = to_cpp(problem);
    const Device place = device_of(device);
    const std::string_view forced = forced_of(implementation);
    *plan = new kronsparse_plan{values == nullptr
                                    ? Plan(converted, place, forced)
                                    : Plan(converted, values_of(values, converted.chain), place, forced)};
  });
}

kronsparse_status kronsparse_plan_set_values(kronsparse_plan* plan, const void* const* values) {
  return guarded([&] { plan_of(plan).set_values(values_of(values, plan->plan.problem().chain)); });
}

kronsparse_status kronsparse_plan_set_values_on(kronsparse_plan* plan, const void* const* values,
                                                void* stream) {
  return guarded([&] { plan_of(plan).set_values(values_of(values, plan->plan.problem().chain), stream); });
}

kronsparse_status kronsparse_plan_prepare(kronsparse_plan* plan, const kronsparse_batch* batch,
                                          const void* const* values) {
  return guarded([&] {
    Plan& made = plan_of(plan);
    made.prepare(to_cpp(batch, made), values_of(values, made.problem().chain));
  });
}

kronsparse_status kronsparse_plan_run(const kronsparse_plan* plan, const kronsparse_batch* batch,
                                      const kronsparse_operands* operands) {
  return guarded([&] { plan_of(plan).run(to_cpp(batch, plan->plan), to_cpp(operands)); });
}

kronsparse_status kronsparse_plan_workspace(const kronsparse_plan* plan, const kronsparse_batch* batch,
                                            const kronsparse_operands* operands, size_t* bytes) {
  return guarded([&] {
    check_not_null("bytes", bytes);
    *bytes = plan_of(plan).workspace_bytes(to_cpp(batch, plan->plan), to_cpp(operands));
  });
}

kronsparse_status kronsparse_plan_intermediates(const kronsparse_plan* plan, const kronsparse_batch* batch,
                                                size_t* bytes) {
  return guarded([&] {
    check_not_null("bytes", bytes);
    *bytes = plan_of(plan).intermediate_bytes(to_cpp(batch, plan->plan));
  });
}

kronsparse_status kronsparse_plan_predict(const kronsparse_plan* plan, const kronsparse_batch* batch,
                                          double* seconds, double* packing_seconds) {
  return guarded([&] {
    check_not_null("seconds", seconds);
    check_not_null("packing_seconds", packing_seconds);
    const Plan& made = plan_of(plan);
    const Batch converted = to_cpp(batch, made);
    const double packing = made.predicted_packing_seconds(converted);
    *seconds = made.predicted_seconds(converted);
    *packing_seconds = packing;
  });
}

kronsparse_status kronsparse_plan_problem(const kronsparse_plan* plan, kronsparse_problem* problem) {
  return guarded([&] {
    check_not_null("problem", problem);
    *problem = to_c(plan_of(plan).problem());
  });
}

kronsparse_status kronsparse_plan_device(const kronsparse_plan* plan, char* text, size_t size) {
  return guarded([&] { print_text(plan_of(plan).device().to_string(), text, size); });
}

kronsparse_status kronsparse_plan_choice(const kronsparse_plan* plan, const kronsparse_batch* batch,
                                         char* text, size_t size) {
  return guarded([&] { print_text(plan_of(plan).implementation(to_cpp(batch, plan->plan)), text, size); });
}

const char* kronsparse_plan_implementation(const kronsparse_plan* plan) {
  return plan == nullptr ? nullptr : plan->plan.implementation().c_str();
}

size_t kronsparse_plan_packed_bytes(const kronsparse_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.packed_bytes();
}

void kronsparse_plan_destroy(kronsparse_plan* plan) { delete plan; }

kronsparse_status kronsparse_packed_create(const kronsparse_plan* plan, kronsparse_packed** packed) {
  return guarded([&] {
    check_not_null("packed", packed);
    *packed = new kronsparse_packed{PackedValues(plan_of(plan))};
  });
}

kronsparse_status kronsparse_packed_create_with(const kronsparse_plan* plan,
                                                kronsparse_allocate_function allocate,
                                                kronsparse_release_function release, void* context,
                                                kronsparse_packed** packed) {
  return guarded([&] {
    check_not_null("packed", packed);
    if (allocate == nullptr || release == nullptr)
      throw Error(ErrorCode::bad_pointer,
                  message("{}: null given, must not be null", allocate == nullptr ? "allocate" : "release"));
    Allocator allocator = [=](std::size_t bytes) {
      void* data = allocate(context, bytes);
      if (data == nullptr)
        throw Error(ErrorCode::out_of_memory, message("allocate: null returned for {} bytes", bytes));
      return std::shared_ptr<void>(data, [=](void* given) { release(context, given); });
    };
    *packed = new kronsparse_packed{PackedValues(plan_of(plan), std::move(allocator))};
  });
}

kronsparse_status kronsparse_packed_is_ready(const kronsparse_packed* packed, const kronsparse_plan* plan,
                                             const kronsparse_batch* batch, int* is_ready) {
  return guarded([&] {
    check_not_null("packed", packed);
    check_not_null("is_ready", is_ready);
    const Plan& made = plan_of(plan);
    *is_ready = packed->values.is_ready(made, to_cpp(batch, made)) ? 1 : 0;
  });
}

kronsparse_status kronsparse_packed_prepare(kronsparse_packed* packed, const kronsparse_plan* plan,
                                            const kronsparse_batch* batch, const void* const* values,
                                            void* stream, int* has_room) {
  return guarded([&] {
    check_not_null("packed", packed);
    const Plan& made = plan_of(plan);
    const bool had_room =
        packed->values.prepare(made, to_cpp(batch, made), values_of(values, made.problem().chain), stream);
    if (has_room != nullptr) *has_room = had_room ? 1 : 0;
  });
}

size_t kronsparse_packed_bytes(const kronsparse_packed* packed) {
  return packed == nullptr ? 0 : packed->values.bytes();
}

void kronsparse_packed_destroy(kronsparse_packed* packed) { delete packed; }

kronsparse_status kronsparse_allocate(const char* device, size_t bytes, void** data) {
  return guarded([&] {
    check_not_null("data", data);
    const Device place = device_of(device);
    *data = backend_of(place).memory.allocate(place, std::max<size_t>(bytes, 1));
  });
}

kronsparse_status kronsparse_free(const char* device, void* data) {
  return guarded([&] {
    const Device place = device_of(device);
    if (data != nullptr) backend_of(place).memory.release(place, data);
  });
}

kronsparse_status kronsparse_copy_from_host(const char* device, void* to, const void* from, size_t bytes,
                                            void* stream) {
  return guarded([&] { copy_from_host(to, from, bytes, device_of(device), stream); });
}

kronsparse_status kronsparse_copy_to_host(const char* device, void* to, const void* from, size_t bytes,
                                          void* stream) {
  return guarded([&] { copy_to_host(to, from, bytes, device_of(device), stream); });
}

kronsparse_status kronsparse_copy(const char* device, void* to, const void* from, size_t bytes,
                                  void* stream) {
  return guarded([&] {
    const Device place = device_of(device);
    const MemoryOps& memory = backend_of(place).memory;
    if (bytes == 0) return;
    check_not_null("to", to);
    check_not_null("from", from);
    memory.copy(place, to, from, bytes, stream);
  });
}

kronsparse_status kronsparse_clear(const char* device, void* data, size_t bytes, void* stream) {
  return guarded([&] {
    const Device place = device_of(device);
    const MemoryOps& memory = backend_of(place).memory;
    if (bytes == 0) return;
    check_not_null("data", data);
    memory.clear(place, data, bytes, stream);
  });
}

kronsparse_status kronsparse_is_capturing(const char* device, void* stream, int* is_capturing) {
  return guarded([&] {
    check_not_null("is_capturing", is_capturing);
    const Device place = device_of(device);
    static_cast<void>(backend_of(place));
    *is_capturing = kronsparse::is_capturing(place, stream) ? 1 : 0;
  });
}

kronsparse_status kronsparse_timer_create(const char* device, void* stream, kronsparse_timer** timer) {
  return guarded([&] {
    check_not_null("timer", timer);
    *timer = new kronsparse_timer{Timer(device_of(device), stream)};
  });
}

kronsparse_status kronsparse_timer_mark(kronsparse_timer* timer) {
  return guarded([&] {
    check_not_null("timer", timer);
    timer->timer.mark();
  });
}

kronsparse_status kronsparse_timer_seconds(const kronsparse_timer* timer, double* seconds, size_t capacity,
                                           size_t* count) {
  return guarded([&] {
    check_not_null("timer", timer);
    copy_list(timer->timer.seconds(), seconds, capacity, count, "seconds",
              [](double one, double& c) { c = one; });
  });
}

void kronsparse_timer_destroy(kronsparse_timer* timer) { delete timer; }

kronsparse_status kronsparse_synchronise(const char* device, void* stream) {
  return guarded([&] { synchronise(device_of(device), stream); });
}

kronsparse_status kronsparse_multiply(const kronsparse_problem* problem, const void* const* values,
                                      const kronsparse_operands* operands) {
  return guarded([&] {
    Operands converted = to_cpp(operands);
    const Plan plan(to_cpp(problem));
    converted.values = values;
    const Buffer workspace(plan.workspace_bytes(batch_of(plan.problem()), converted));
    converted.workspace = workspace.data();
    converted.workspace_bytes = workspace.bytes();
    plan.run(converted);
  });
}

}  // extern "C"

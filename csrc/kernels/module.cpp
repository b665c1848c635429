/* cowmlx.accelerate._kernels: mlx primitives for processors. nanobind shares mlx's types through
 * its domain "mlx", if both were made with the same internals. */

#include <dlfcn.h>

#include "mlx/version.h"
#include "primitives/operation.h"

namespace {

/* Found in the module's file by those who list what is in it. */
#define TEXT(x) #x
#define VERSION(major, minor, patch) "nanobind-" TEXT(major) "." TEXT(minor) "." TEXT(patch)
constexpr char MADE_WITH[] = VERSION(NB_VERSION_MAJOR, NB_VERSION_MINOR, NB_VERSION_PATCH);

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (auto one = cowmlx::usable_tables(); *one != nullptr; one++) names.emplace_back((*one)->name);
  return names;
}

void use(const std::string& name) {
  if (const std::string why = cowmlx::select_table(name.c_str()); !why.empty())
    throw nb::value_error(why.c_str());
}

std::string made_for() {
  return std::to_string(MLX_VERSION_MAJOR) + "." + std::to_string(MLX_VERSION_MINOR) + "." +
         std::to_string(MLX_VERSION_PATCH);
}

/* Let mlx's matrix products use the thread pool: csrc/blas/cblas.c cuts them into parts. */
void share_pool() {
  using Share = void (*)(int (*)(), void (*)(int, cowmlx::Chunk, void*));
  if (auto share = reinterpret_cast<Share>(dlsym(RTLD_DEFAULT, "cow_blas_share")))
    share(cowmlx::threads, cowmlx::parallel);
}

}  // namespace

NB_MODULE(_kernels, module) {
  nb::set_leak_warnings(false); /* an interpreter that ends prints nothing */
  share_pool();
  module.doc() =
      "Kernels for processors, as operations of mlx on the CPU.\n\nFunctions raise ValueError for "
      "shapes, types or formats that do not fit.";
  module.attr("MLX_VERSION") = made_for();
  module.attr("MADE_WITH") = MADE_WITH;
  module.def(
      "takes", [](nb::handle value) { return nb::isinstance<mlx::core::array>(value); }, "value"_a,
      "Whether a value is an array of mlx, as this module sees it.");
  module.def("instruction_sets", instruction_sets,
             "Names of the instruction sets that may be used here, best first.");
  module.def(
      "instruction_set", [] { return std::string(cowmlx::table().name); },
      "Name of the instruction set in use.");
  module.def("select", use, "name"_a,
             "Use an instruction set from the next operation on; \"\" for the best.\n\n"
             "Raises:\n    ValueError: there is none of that name, or not here.");
  module.def("threads", cowmlx::threads, "How many threads compute, the caller's included.");
  module.def("set_threads", cowmlx::set_threads, "count"_a,
             "Bound the threads from the next operation on; 0: as many as the process may use.");
  module.def(
      "helper", [] { return reinterpret_cast<uintptr_t>(&cowmlx::HELPER); },
      "Address of the cow_helper for threads that wait for the results of recordings.");
  cowmlx::bind_adam(module);
  cowmlx::bind_adopt(module);
  cowmlx::bind_allocator(module);
  cowmlx::bind_attention(module);
  cowmlx::bind_cache_rows(module);
  cowmlx::bind_channels(module);
  cowmlx::bind_convolution(module);
  cowmlx::bind_cross_entropy(module);
  cowmlx::bind_encoder(module);
  cowmlx::bind_evaluation(module);
  cowmlx::bind_experts(module);
  cowmlx::bind_indices(module);
  cowmlx::bind_mlstm(module);
  cowmlx::bind_layers(module);
  cowmlx::bind_layers_decode(module);
  cowmlx::bind_layers_steps(module);
  cowmlx::bind_norm(module);
  cowmlx::bind_pack(module);
  cowmlx::bind_product(module);
  cowmlx::bind_recording(module);
  cowmlx::bind_rope(module);
  cowmlx::bind_rows(module);
  cowmlx::bind_sample(module);
  cowmlx::bind_texts(module);
  cowmlx::bind_trained_attention(module);
}

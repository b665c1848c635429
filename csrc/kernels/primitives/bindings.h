/* What each file of primitives adds to the Python module. */
#pragma once

#include <nanobind/nanobind.h>

namespace cowmlx {

void bind_adam(nanobind::module_& module);
void bind_adopt(nanobind::module_& module);
void bind_attention(nanobind::module_& module);
void bind_draw(nanobind::module_& module);
void bind_experts(nanobind::module_& module);
void bind_mlstm(nanobind::module_& module);
void bind_layers(nanobind::module_& module);
void bind_layers_decode(nanobind::module_& module);
void bind_layers_steps(nanobind::module_& module);
void bind_pack(nanobind::module_& module);
void bind_product(nanobind::module_& module);
void bind_recording(nanobind::module_& module);
void bind_rope(nanobind::module_& module);
void bind_rows(nanobind::module_& module);
void bind_take(nanobind::module_& module);

}  // namespace cowmlx

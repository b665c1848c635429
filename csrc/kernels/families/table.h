/* The table of one instruction set: included by the file of that set. */
#pragma once

#include "attention.h"
#include "attention_gradient.h"
#include "channels.h"
#include "convolution.h"
#include "products.h"
#include "recurrence.h"
#include "rows.h"
#include "sample.h"

namespace cowmlx::ISA {

static constexpr Table filled(const char* name) {
  Table table{};
  table.name = name;
  table.prepare_size = prepare_size;
  table.prepare = prepare;
  table.product = product;
  table.row_numbers = row_numbers;
  table.rms_norm = rms_norm;
  table.layer_norm = layer_norm;
  table.norm_gradient = norm_gradient;
  table.add = add;
  table.gate = gate;
  table.gelu_gradient = gelu_gradient;
  table.softmax = softmax;
  table.rotate = rotate;
  table.store = store_numbers;
  table.load = load_numbers;
  table.quantize = quantize_numbers;
  table.attention_size = attention_size;
  table.attention = attention;
  table.trained_attention_size = trained_attention_size;
  table.trained_attention = trained_attention;
  table.attention_gradient = attention_gradient;
  table.beside = beside_rows;
  table.multiply_windows = multiply_windows;
  table.by_channels = by_channels;
  table.outer_products = outer_products;
  table.multiply_line = multiply_line;
  table.outer_lines = outer_lines;
  table.line_sums = line_sums;
  table.highest = maximum_of;
  table.exponentials = exponentials;
  table.threefry = threefry;
  table.contenders = contenders;
  table.recurrence = recurrence;
  table.adam = adam;
  return table;
}

}  // namespace cowmlx::ISA

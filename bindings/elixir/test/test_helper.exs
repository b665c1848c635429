# COWMLX_LIBRARY names the library, COWMLX_TEST_MODEL the model's folder. The runtime takes no GPU:
# the tests compare numbers.
CowMLX.Runtime.start!(device: "cpu")
ExUnit.start(exclude: [:long])

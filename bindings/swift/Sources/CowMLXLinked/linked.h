/* Links a program with the libcowmlx that pkg-config finds; the package then uses that one. */

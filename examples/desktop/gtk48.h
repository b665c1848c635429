/* GTK, with what 4.8 has and nothing newer; newer versions do not warn of it. */
#ifndef GTK48_H
#define GTK48_H

#define GDK_VERSION_MIN_REQUIRED GDK_VERSION_4_8
#define GDK_VERSION_MAX_ALLOWED GDK_VERSION_4_8
#include <gtk/gtk.h>

#endif

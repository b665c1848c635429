/* How the window looks. */
#ifndef STYLE_H
#define STYLE_H

void style_use(void);

#endif

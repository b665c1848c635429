import cowmlx.*;
import cowmlx.Runtime;
import java.util.*;

public class Page {
  public static void main(String[] arguments) throws Exception {
    try (Runtime runtime = new Runtime();
        Model model = Model.load("models/calf");
        Context context = model.context()) {
      int[] tokens = model.tokenize("Once upon a time", true);
      /* BLOCK */
    }
  }
}
